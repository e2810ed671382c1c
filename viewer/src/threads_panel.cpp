// Threads and telemetry: what each thread is doing now, what was read and what was lost, what the viewer itself costs.
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <headroom/byte_size.hpp>

#include "cached.hpp"
#include "figures.hpp"
#include "panels.hpp"
#include "thread_rows.hpp"

namespace headroom::viewer {
namespace {

constexpr std::array kColumns{
    Column{.title = "Thread", .width = 10, .is_right = true},
    Column{.title = "Name", .width = 17, .rank = 1},
    Column{.title = "For", .width = 11, .rank = 2, .is_right = true, .help = "How long it has been at it"},
    Column{.title = "Doing", .least = 20},
    Column{.title = "Manager", .width = 14, .rank = 3},
    Column{.title = "Lane",
           .width = 6,
           .rank = 6,
           .is_right = true,
           .help = "Its place in the flight file; shared ones are not listed"},
    Column{.title = "Events",
           .width = 12,
           .rank = 4,
           .is_right = true,
           .help = "Allocations and frees that its lane has had, all owners together"},
    Column{.title = "Journal", .width = 11, .rank = 5, .is_right = true, .help = "Everything else: failures, hooks, pressure, …"},
};

class ThreadsPanel final : public Panel {
public:
  [[nodiscard]] PanelInfo const& info() const noexcept override {
    static constexpr PanelInfo kInfo{
        .name = "threads",
        .title = "Threads",
        .what = "What each thread is doing right now; what was read, what was lost, what the viewer costs",
        .place = Place::left};
    return kInfo;
  }

  void forget() override { rows_.forget(); }

  void draw(ViewState& state, Ui& ui) override {
    auto const& model = *state.model;
    // How long a thread has been at something changes without any news.
    Key const key{.revision = state.revision, .quarter_second = static_cast<std::uint64_t>(ImGui::GetTime() * 4)};
    auto const& rows = rows_.get(key, [&] { return thread_rows(model); });
    draw_telemetry(state, ui);
    ui.heading(model.source().liveness() == flight::Liveness::dead ? "When it ended" : "Right now");
    if (state.cursor) ui.soft("What threads did is known of this moment only, not of the one on the timeline");
    if (rows.empty()) {
      if (model.source().kind() == follow::SourceKind::history) {
        return ui.empty("A recorded history knows no threads at work", "Its events have their threads: see the event log");
      }
      return ui.empty("No thread holds a lane", "A thread takes one with its first allocation");
    }
    if (auto table = ui.table("threads", kColumns)) {
      table.rows(rows.size(), [&](std::size_t row) { draw_row(ui, rows[row]); });
    }
  }

private:
  struct Key {
    std::uint64_t revision = 0, quarter_second = 0;
    friend bool operator==(Key const&, Key const&) = default;
  };

  static void figure(Ui& ui, std::string_view label, std::string_view text, std::string_view help, bool is_bad = false) {
    ui.labelled(label, text, is_bad ? std::optional{ui.colours().bad} : std::nullopt);
    ui.help(help);
    Ui::same_line(ImGui::GetFontSize() * 1.5F);
  }

  static void draw_telemetry(ViewState const& state, Ui& ui) {
    auto const& model = *state.model;
    auto const losses = model.losses();
    auto const process = model.source().process();
    ui.heading("What was read");
    figure(ui, "events", format_count(losses.events_read), "Records that were read from the file");
    figure(ui, "lost", format_count(losses.events_lost),
           "Overwritten before they could be read. Totals, budget and peak come from the books and stay right",
           losses.events_lost != 0);
    figure(ui, "refused", format_count(losses.events_refused),
           "Never written: no lane was free, or the thread was writing already", losses.events_refused != 0);
    figure(ui, "missing operations", format_count(losses.operations_missing),
           "Noticed by their numbers: in " + format_count(losses.gaps) + " gaps", losses.operations_missing != 0);
    ui.labelled("waiting", format_count(losses.waiting_events));
    ui.help("Read, but waiting for an operation before them");
    figure(ui, "let go of", format_count(losses.forgotten_operations),
           "Older operations, for which there was no memory: --memory gives more");
    figure(ui, "late", format_count(losses.late_events), "Arrived after their place was given up");
    figure(ui, "frees of unknown blocks", format_count(losses.unmatched_frees),
           "Of blocks that were never seen: shown, and never below zero");
    ui.labelled("folded names", format_count(process.tags_folded + process.sites_folded));
    ui.help("Tags and sites beyond what the file has room for: they count as 'other'");
    if (process.last_activity_realtime_ns != 0) {
      auto const now = model.realtime_ns(model.source().now_ticks());
      ui.labelled("last clock sync", follow_age(now, process.last_activity_realtime_ns));
      ui.help("The program writes one about once a second while it allocates: it is a sign of life, and ties ticks to time");
    }
    ui.heading("The viewer");
    std::array<char, 48> frames{};
    (void)std::snprintf(frames.data(), frames.size(), "%.2f ms", static_cast<double>(ImGui::GetIO().DeltaTime) * 1e3);  // NOLINT
    figure(ui, "frame", frames.data(), "From the last frame to this one");
    figure(ui, "memory", format_bytes(own_memory_bytes()), "Resident, all of it");
    ui.labelled("of that the past", format_bytes(model.memory_bytes()));
    ui.help("Operations, keyframes and journal: bounded by --memory");
  }

  [[nodiscard]] static std::string follow_age(std::uint64_t now, std::uint64_t then) {
    return format_duration(now - std::min(now, then)) + " ago";
  }

  static void draw_row(Ui& ui, ThreadRow const& row) {
    auto const ink = row.is_idle ? ui.colours().soft : row.is_slow ? ui.colours().warning : ui.colours().text;
    ui.cell();
    ui.text_right(row.thread == 0 ? "?" : std::to_string(row.thread));
    ui.cell();
    ui.elided(row.name);
    ui.cell();
    if (row.since_ns) ui.duration_right(*row.since_ns);
    ui.cell();
    ui.elided(row.doing, 0, ink);
    ui.cell();
    ui.elided(row.manager);
    ui.cell();
    if (row.lane) ui.text_right(std::to_string(*row.lane));
    ui.cell();
    ui.count_right(row.events);
    ui.cell();
    ui.count_right(row.journal_events);
  }

  Cached<Key, std::vector<ThreadRow>> rows_;
};

}  // namespace

std::unique_ptr<Panel> make_threads_panel() { return std::make_unique<ThreadsPanel>(); }

}  // namespace headroom::viewer
