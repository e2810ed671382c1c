// Export: what is selected as CSV or JSON, everything as a Chrome trace.
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <headroom/byte_size.hpp>

#include "export_data.hpp"
#include "figures.hpp"
#include "new_file.hpp"
#include "panels.hpp"

namespace headroom::viewer {
namespace {

constexpr std::size_t kRowsAFrame = 10'000;  // some milliseconds

class ExportPanel final : public Panel {
public:
  ~ExportPanel() override {
    if (trace_.valid()) trace_.wait();
  }
  ExportPanel() = default;
  ExportPanel(ExportPanel const&) = delete;
  ExportPanel& operator=(ExportPanel const&) = delete;

  [[nodiscard]] PanelInfo const& info() const noexcept override {
    static constexpr PanelInfo kInfo{.name = "export",
                                     .title = "Export",
                                     .what = "What is selected as CSV or JSON, everything as a Chrome trace. Ctrl+E comes here",
                                     .place = Place::right};
    return kInfo;
  }

  void forget() override {
    if (!std::exchange(rows_, nullptr)) return;
    rows_failed_ = true;
    rows_result_ = "not written: something else was opened meanwhile";
  }

  void draw(ViewState& state, Ui& ui) override {
    write_more(state);
    ui.heading("Events, or what is live");
    static std::array<std::string, 2> const what_names{"events", "live allocations"};
    static std::array<std::string, 2> const format_names{"CSV", "JSON"};
    propose();
    (void)ui.choice("##what", what_names, what_, ImGui::GetFontSize() * 9);
    Ui::same_line();
    (void)ui.choice("##format", format_names, format_, ImGui::GetFontSize() * 5);
    ui.soft(scope(state));
    (void)ui.input("##rows path", "path of the file", rows_path_, ImGui::GetFontSize() * 24);
    Ui::same_line();
    ImGui::BeginDisabled(rows_path_.empty() || rows_);
    if (ui.button("write##rows")) write_rows(state);
    ImGui::EndDisabled();
    if (rows_) ui.soft(format_count(rows_->exported().rows) + " of " + format_count(rows_->count()) + " rows so far");
    draw_result(ui, rows_result_, rows_failed_);

    ui.heading("Everything, as a Chrome trace");
    ui.soft("Opens in Perfetto (ui.perfetto.dev) and chrome://tracing. The file is read once more for it.");
    (void)ui.input("##trace path", "path of the file", trace_path_, ImGui::GetFontSize() * 24);
    Ui::same_line();
    take_trace();
    ImGui::BeginDisabled(trace_path_.empty() || trace_.valid());
    if (ui.button("write##trace")) write_trace(state);
    ImGui::EndDisabled();
    if (trace_.valid()) {
      ui.soft(format_count(progress_->load(std::memory_order_relaxed)) + " events so far");
      state.touch();
    }
    draw_result(ui, trace_result_, trace_failed_);
  }

private:
  [[nodiscard]] std::string scope(ViewState const& state) const {
    if (what_ == 1) return "of the manager that the header shows, at " + format_instant(*state.model, state.instant(), 1'000);
    auto text = state.selected
                    ? "of the selected " + format_between(*state.model, state.selected->begin, state.selected->end)
                    : std::string{"of all that is kept; a selected range (Ctrl and drag on the timeline) makes it less"};
    if (!state.filter.text.empty()) text += ", as filtered: " + state.filter.text;
    return text;
  }

  /// Names that nothing has yet; again whenever one was used up or what is written is something else.
  void propose() {
    auto const chosen = std::pair{what_, format_};
    if (chosen == proposed_for_ && !proposed_rows_.empty() && !was_written_) return;
    proposed_for_ = chosen;
    was_written_ = false;
    auto const offer = [](std::string& field, std::string& proposed, std::string const& stem, char const* extension) {
      auto name = free_name(stem, extension);
      if (field == proposed) field = name;
      proposed = std::move(name);
    };
    offer(rows_path_, proposed_rows_, what_ == 0 ? "headroom-events" : "headroom-live", format_ == 0 ? ".csv" : ".json");
    offer(trace_path_, proposed_trace_, "headroom-trace", ".json");
  }

  void write_rows(ViewState& state) {
    auto begun = RowExport::begin(state, what_ == 0 ? ExportWhat::events : ExportWhat::live,
                                  format_ == 0 ? ExportFormat::csv : ExportFormat::json, rows_path_);
    rows_result_.clear();
    if (!begun) return end_rows(begun.error().to_string(), true);
    rows_ = std::make_unique<RowExport>(std::move(*begun));
    state.touch();
  }

  /// A part of them in each frame, while the panel is in sight.
  void write_more(ViewState& state) {
    if (!rows_) return;
    state.touch();
    auto const done = rows_->write(kRowsAFrame);
    if (!done) return end_rows(done.error().to_string(), true);
    if (!*done) return;
    auto const exported = rows_->exported();
    auto text = format_count(exported.rows) + " rows written";
    if (exported.rows < exported.matching) text += ", the newest of " + format_count(exported.matching);
    end_rows(std::move(text), false);
  }

  void end_rows(std::string result, bool has_failed) {
    rows_.reset();
    rows_failed_ = has_failed;
    was_written_ = true;
    rows_result_ = std::move(result);
  }

  void write_trace(ViewState const& state) {
    trace_result_.clear();
    progress_->store(0, std::memory_order_relaxed);
    auto again = read_again(state);
    if (!again) {
      trace_failed_ = true;
      trace_result_ = again.error().to_string();
      return;
    }
    trace_ = std::async(std::launch::async, [again = std::move(*again), path = trace_path_, progress = progress_]() mutable {
      return export_trace(std::move(again), path, *progress);
    });
  }

  void take_trace() {
    if (!trace_.valid() || trace_.wait_for(std::chrono::seconds{0}) != std::future_status::ready) return;
    auto const done = trace_.get();
    trace_failed_ = !done;
    was_written_ = true;
    trace_result_ = done ? format_count(done->events) + " events played" : done.error().to_string();
    if (done && done->gaps != 0) trace_result_ += ", with " + format_count(done->gaps) + " gaps";
  }

  static void draw_result(Ui& ui, std::string const& result, bool has_failed) {
    if (result.empty()) return;
    ui.wrapped(result, has_failed ? ui.colours().bad : ui.colours().good);
  }

  std::size_t what_ = 0, format_ = 0;
  std::string rows_path_, trace_path_;
  std::string proposed_rows_, proposed_trace_;  // in these fields, unless the person wrote something else
  std::string rows_result_, trace_result_;
  std::unique_ptr<RowExport> rows_;  // while they are being written
  std::pair<std::size_t, std::size_t> proposed_for_{};
  bool rows_failed_ = false, trace_failed_ = false, was_written_ = false;
  /// Of the thread that writes; relaxed: only a figure. It outlives neither the future nor the panel.
  std::shared_ptr<std::atomic<std::uint64_t>> progress_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::future<Result<ConvertReport>> trace_;
};

}  // namespace

std::unique_ptr<Panel> make_export_panel() { return std::make_unique<ExportPanel>(); }

}  // namespace headroom::viewer
