// Export: what is selected as CSV or JSON, everything as a Chrome trace.
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include <headroom/byte_size.hpp>

#include "export_data.hpp"
#include "figures.hpp"
#include "panels.hpp"

namespace headroom::viewer {
namespace {

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

  void draw(ViewState& state, Ui& ui) override {
    ui.heading("Events, or what is live");
    static std::array<std::string, 2> const kWhat{"events", "live allocations"};
    static std::array<std::string, 2> const kFormats{"CSV", "JSON"};
    (void)ui.choice("##what", kWhat, what_, ImGui::GetFontSize() * 9);
    Ui::same_line();
    (void)ui.choice("##format", kFormats, format_, ImGui::GetFontSize() * 5);
    ui.soft(scope(state));
    (void)ui.input("##rows path", "path of the file", rows_path_, ImGui::GetFontSize() * 24);
    Ui::same_line();
    ImGui::BeginDisabled(rows_path_.empty());
    if (ui.button("write##rows")) write_rows(state);
    ImGui::EndDisabled();
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

  void write_rows(ViewState const& state) {
    auto const done = export_rows(state, what_ == 0 ? ExportWhat::events : ExportWhat::live,
                                  format_ == 0 ? ExportFormat::csv : ExportFormat::json, rows_path_);
    rows_failed_ = !done;
    rows_result_ = done ? format_count(done->rows) + " rows written" : done.error().to_string();
    if (done && done->rows < done->matching) rows_result_ += ", the newest of " + format_count(done->matching);
  }

  void write_trace(ViewState const& state) {
    trace_result_.clear();
    progress_->store(0, std::memory_order_relaxed);
    trace_ = std::async(std::launch::async,
                        [title = state.model->source().title(), kind = state.model->source().kind(), path = trace_path_,
                         progress = progress_] { return export_trace(title, kind, path, *progress); });
  }

  void take_trace() {
    if (!trace_.valid() || trace_.wait_for(std::chrono::seconds{0}) != std::future_status::ready) return;
    auto const done = trace_.get();
    trace_failed_ = !done;
    trace_result_ = done ? format_count(done->events) + " events played" : done.error().to_string();
    if (done && done->gaps != 0) trace_result_ += ", with " + format_count(done->gaps) + " gaps";
  }

  static void draw_result(Ui& ui, std::string const& result, bool has_failed) {
    if (result.empty()) return;
    ui.wrapped(result, has_failed ? ui.colours().bad : ui.colours().good);
  }

  std::size_t what_ = 0, format_ = 0;
  std::string rows_path_ = "headroom-events.csv", trace_path_ = "headroom-trace.json";
  std::string rows_result_, trace_result_;
  bool rows_failed_ = false, trace_failed_ = false;
  /// Of the thread that writes; relaxed: only a figure. It outlives neither the future nor the panel.
  std::shared_ptr<std::atomic<std::uint64_t>> progress_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::future<Result<ConvertReport>> trace_;
};

}  // namespace

std::unique_ptr<Panel> make_export_panel() { return std::make_unique<ExportPanel>(); }

}  // namespace headroom::viewer
