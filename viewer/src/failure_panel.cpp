// The failure inspector: what was asked, who said no, what was tried, and who held the memory then.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <headroom/byte_size.hpp>

#include "cached.hpp"
#include "event_words.hpp"
#include "failure_data.hpp"
#include "figures.hpp"
#include "paced.hpp"
#include "panels.hpp"
#include "site_words.hpp"
#include "travel.hpp"

namespace headroom::viewer {
namespace {

using follow::FailureEnd;

constexpr std::array kActColumns{
    Column{.title = "After", .width = 8, .rank = 4, .is_right = true, .help = "Since the refusal"},
    Column{.title = "Hook or step", .width = 12},
    Column{.title = "Expected", .width = 8, .rank = 1, .is_right = true, .help = "What the hook thought it could free"},
    Column{.title = "Said", .width = 8, .rank = 2, .is_right = true, .help = "What the hook said it freed"},
    Column{.title = "Freed",
           .width = 8,
           .is_right = true,
           .help = "What its thread really gave back, or what came back in this step"},
    Column{.title = "Claims fell",
           .width = 10,
           .rank = 5,
           .is_right = true,
           .help = "By how much all claims of the manager fell meanwhile, whoever did it"},
    Column{.title = "Took", .width = 7, .rank = 3, .is_right = true},
    Column{.title = "Result", .least = 26},
};
constexpr std::array kHolderColumns{
    Column{.title = "Tag", .width = 26},
    Column{.title = "Held then", .width = 11, .is_right = true},
    Column{.title = "Blocks", .width = 9, .rank = 1, .is_right = true},
    Column{.title = "Share", .least = 8, .rank = 2},
};
constexpr std::size_t kMostHolders = 256;

ImU32 colour_of(FailureEnd end, Colours const& colours) {
  switch (end) {
    case FailureEnd::recovered: return colours.good;
    case FailureEnd::observed: return colours.soft;
    case FailureEnd::under_way: return colours.warning;
    case FailureEnd::failed:
    case FailureEnd::gave_up: break;
  }
  return colours.bad;
}

std::string word_of(FailureEnd end) {
  switch (end) {
    case FailureEnd::failed: return "failed at once";
    case FailureEnd::recovered: return "granted in the end";
    case FailureEnd::gave_up: return "failed for good";
    case FailureEnd::under_way: return "under way";
    case FailureEnd::observed: return "let pass";
  }
  return {};
}

/// A table's height for so many rows, heading included.
float height_of(std::size_t rows) {
  auto const line = ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y;
  return line * (static_cast<float>(rows) + 1) + ImGui::GetStyle().ItemSpacing.y;
}

class FailurePanel final : public Panel {
public:
  [[nodiscard]] PanelInfo const& info() const noexcept override {
    static constexpr PanelInfo kInfo{
        .name = "failure",
        .title = "Failure",
        .what = "One request that was refused: why, what was tried, who held the memory. N and Shift+N go on",
        .place = Place::right};
    return kInfo;
  }

  void forget() override {
    stories_.forget();
    details_.forget();
  }

  void draw(ViewState& state, Ui& ui) override {
    auto const& stories = stories_.get(0, state.revision, [&] { return state.model->failures(); });
    if (stories_.is_behind()) state.touch();
    auto const place = inspected(stories, state);
    if (!place) {
      if (stories.empty()) return draw_none(state, ui);
      ui.empty("No request had failed by this moment", "N goes to the first failure");
      return;
    }
    draw_steps(state, ui, stories, *place);
    auto const& details = details_.get({.revision = state.revision, .stories = stories_.made(), .number = stories[*place].number},
                                       [&] { return failure_details(*state.model, stories[*place]); });
    ImGui::BeginChild("failure");
    draw_headline(ui, details);
    draw_request(state, ui, details);
    draw_budget(ui, details.story);
    draw_acts(ui, details);
    draw_holders(ui, details);
    ImGui::EndChild();
  }

private:
  struct Key {
    std::uint64_t revision = 0;
    std::uint64_t stories = 0;  // how often they were worked out: they may be behind the revision
    std::uint64_t number = 0;
    friend bool operator==(Key const&, Key const&) = default;
  };

  static void draw_none(ViewState const& state, Ui& ui) {
    std::uint64_t refused = 0;
    for (auto const& ledger : state.model->ledgers()) refused += ledger.is_device_account ? 0 : ledger.failures();
    if (refused == 0) {
      ui.empty("No request has failed", "When one does, this shows why, what was tried, and who held the memory");
    } else {
      ui.empty(format_count(refused) + (refused == 1 ? " request" : " requests") + " failed, and no record of it is left",
               "The books count it all the same");
    }
  }

  static void draw_steps(ViewState& state, Ui& ui, std::vector<follow::FailureStory> const& stories, std::size_t place) {
    if (ui.small_button("\u2190 previous")) go_to_failure(state, false);
    ui.help("Shift+N");
    Ui::same_line();
    if (ui.small_button("next \u2192")) go_to_failure(state, true);
    ui.help("N");
    Ui::same_line();
    ui.soft("failure " + format_count(place + 1) + " of " + format_count(stories.size()));
    if (auto const forgotten = state.model->losses().forgotten_failures; forgotten != 0) {
      Ui::same_line();
      ui.warning(format_count(forgotten) + " older ones were let go of");
    }
    Ui::same_line();
    if (ui.small_button("show this moment")) {
      state.failure = stories[place].number;
      state.choose_ledger(stories[place].ledger);
      state.travel_to(stories[place].ticks);
    }
    ui.help("All panels then show what was the case when it failed");
  }

  static void draw_headline(Ui& ui, FailureDetails const& details) {
    ui.large(format_bytes(details.story.requested) + " for " +
             (details.story.tag.empty() ? std::string{kUntagged} : details.story.tag));
    Ui::same_line();
    ui.badge(word_of(details.story.end), colour_of(details.story.end, ui.colours()));
    ui.wrapped(details.words.what + "; " + details.words.outcome + '.');
  }

  static void draw_request(ViewState const& state, Ui& ui, FailureDetails const& details) {
    auto const& story = details.story;
    ui.heading("The request");
    auto const wall = format_wall_clock(*state.model, story.ticks);
    line(ui, "when", format_instant(*state.model, story.ticks, 1'000) + (wall.empty() ? "" : "   " + wall));
    line(ui, "asked for", format_bytes_exact(story.requested));
    line(ui, "by",
         "thread " + std::to_string(details.thread) + (story.inside_hook ? ", inside a hook or callback" : "") +
             (story.ledger_name.empty() ? "" : ", of manager " + story.ledger_name));
    if (!story.site.empty()) line(ui, "at", site_in_words(story.site), {}, story.site);
    auto who = story.layer ? std::string{to_string(*story.layer)} : std::string{"not known"};
    if (story.kind) who += ": " + std::string{to_string(*story.kind)};
    if (story.device_code != 0) who += " (code " + std::to_string(story.device_code) + ')';
    line(ui, "refused by", who, ui.colours().bad);
    if (story.later_kind) line(ui, "later met", std::string{to_string(*story.later_kind)});
    if (details.missing && *details.missing != 0) line(ui, "missing", format_bytes_exact(*details.missing), ui.colours().bad);
    if (story.incomplete) ui.warning("Records of its thread are missing: hooks, policy and end may not be all there was");
  }

  static void line(Ui& ui, std::string_view label, std::string_view text, std::optional<ImU32> colour = {},
                   std::string_view more = {}) {
    ui.soft(label);
    Ui::same_line();
    ImGui::SetCursorPosX(ImGui::GetFontSize() * 7);
    ui.elided(text, 0, colour, more);
  }

  /// Allocated, reserved and claimed bytes, and the request on top of them, against the limit.
  static void draw_budget(Ui& ui, follow::FailureStory const& story) {
    ui.heading("The budget at that instant");
    auto const& colours = ui.colours();
    auto const claimed = story.claimed.value_or(story.allocated);
    if (story.limit) {
      auto const whole = static_cast<double>(std::max(*story.limit, claimed + story.requested));
      auto const size = ImGui::GetFontSize();
      auto const at = ImGui::GetCursorScreenPos();
      auto const width = std::max(ImGui::GetContentRegionAvail().x - 2, 1.0F);
      auto const x = [&](std::uint64_t bytes) {
        return at.x + width * static_cast<float>(whole > 0 ? static_cast<double>(bytes) / whole : 0);
      };
      auto* const list = ImGui::GetWindowDrawList();
      auto const bar = [&](std::uint64_t from, std::uint64_t to, ImU32 colour) {
        if (to > from) list->AddRectFilled({x(from), at.y}, {std::max(x(to), x(from) + 1), at.y + size}, colour);
      };
      auto const allocated = std::min(story.allocated, claimed);
      auto const unspent = std::min(story.unspent.value_or(0), claimed - allocated);
      bar(0, allocated, colours.accent);
      bar(allocated, allocated + unspent, faded(colours.accent, 0.6F));
      bar(allocated + unspent, claimed, faded(colours.accent, 0.35F));
      bar(claimed, claimed + story.requested, faded(colours.bad, 0.45F));
      list->AddRect({x(claimed), at.y}, {x(claimed + story.requested), at.y + size}, colours.bad);
      list->AddLine({x(*story.limit), at.y - 3}, {x(*story.limit), at.y + size + 3}, colours.limit, 2);
      ImGui::Dummy({width, size + 3});
      ui.help("Filled: allocated, reserved, under way. Framed: the request. The line: the budget.");
    }
    line(ui, "budget",
         story.limit ? format_bytes_exact(*story.limit) + (story.enforcing ? "" : ", observing only") : "none, or not known");
    line(ui, "claimed", story.claimed ? format_bytes_exact(*story.claimed) : "not known");
    line(ui, "allocated", format_bytes_exact(story.allocated));
    if (story.unspent && *story.unspent != 0) line(ui, "reserved", format_bytes_exact(*story.unspent) + ", not spent yet");
    if (story.peak) line(ui, "peak so far", format_bytes_exact(*story.peak));
    line(ui, "device free", story.device_free ? format_bytes_exact(*story.device_free) : "not known");
  }

  static void draw_acts(Ui& ui, FailureDetails const& details) {
    ui.heading("What was done about it");
    if (details.acts.empty()) {
      ui.soft("Nothing: no hook ran and no policy had anything to try");
      return;
    }
    if (auto table = ui.table("acts", kActColumns, height_of(std::min<std::size_t>(details.acts.size(), 12)))) {
      table.rows(details.acts.size(), [&](std::size_t row) { draw_act(ui, details.acts[row]); });
    }
    ui.text_coloured(details.words.outcome, colour_of(details.story.end, ui.colours()));
  }

  static void draw_act(Ui& ui, FailureAct const& act) {
    auto const figure = [&ui](std::optional<std::uint64_t> const& bytes, std::optional<ImU32> colour = {}) {
      ui.cell();
      if (bytes) ui.bytes_right(*bytes, colour);
    };
    ui.cell();
    ui.duration_right(act.after_ns);
    ui.cell();
    ui.elided(act.is_hook ? std::string_view{act.name} : "policy", 0, act.is_hook ? ui.colours().text : ui.colours().soft);
    figure(act.estimate, ui.colours().soft);
    figure(act.reported, ui.colours().soft);
    auto const is_short = act.freed && act.reported && *act.freed < *act.reported;
    figure(act.freed, is_short ? ui.colours().bad : ui.colours().text);
    ui.cell();
    if (act.ledger_fell) {
      auto const fell = *act.ledger_fell;
      auto const magnitude = fell < 0 ? 0 - static_cast<std::uint64_t>(fell) : static_cast<std::uint64_t>(fell);
      ui.text_right((fell < 0 ? "\u2212" : "") + format_bytes(magnitude), ui.colours().soft);
    }
    ui.cell();
    if (act.duration_ns != 0) ui.duration_right(act.duration_ns);
    if (act.limit_ns != 0 && ImGui::IsItemHovered()) ui.help("its limit: " + format_duration(act.limit_ns));
    ui.cell();
    ui.elided(act.is_hook ? act.result : act.name, 0, act.is_bad ? ui.colours().bad : ui.colours().soft);
  }

  static void draw_holders(Ui& ui, FailureDetails const& details) {
    ui.heading("Who held the memory then");
    if (!details.held) {
      ui.soft("Not recorded any more");
      return;
    }
    auto const& held = *details.held;
    if (held.unattributed_bytes != 0) ui.warning(format_bytes(held.unattributed_bytes) + " of it in blocks that were never seen");
    if (held.tags.empty()) {
      ui.soft("Nobody: nothing was live in this manager");
      return;
    }
    auto const rows = std::min(held.tags.size(), kMostHolders);
    ui.showing(rows, held.tags.size(), "tags");
    if (auto table = ui.table("holders", kHolderColumns, height_of(std::min<std::size_t>(rows, 20)))) {
      table.rows(rows, [&](std::size_t row) {
        auto const& tag = held.tags[row];
        ui.cell();
        ui.tag(tag.name);
        ui.cell();
        ui.bytes_right(tag.bytes);
        ui.cell();
        if (tag.allocations != 0) ui.count_right(tag.allocations);
        ui.cell();
        ui.share_bar(held.bytes == 0 ? 0 : static_cast<double>(tag.bytes) / static_cast<double>(held.bytes),
                     ui.tag_colour(tag.name));
      });
    }
  }

  Paced<int, std::uint64_t, std::vector<follow::FailureStory>> stories_;  // there is nothing to choose

  Cached<Key, FailureDetails> details_;
};

}  // namespace

std::unique_ptr<Panel> make_failure_panel() { return std::make_unique<FailurePanel>(); }

}  // namespace headroom::viewer
