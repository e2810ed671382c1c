// The insides of a Timeline: timeline.cpp (both roads, and histories), timeline_rings.cpp (flight files and dumps).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <headroom/follow.hpp>

#include "dump/timeline.hpp"
#include "dump/timeline_books.hpp"
#include "follow/names.hpp"

namespace headroom::dump {

class TimelineTexts final : public TimelineNames {
public:
  [[nodiscard]] std::string_view tag(std::uint32_t number) const noexcept override { return tags_.text(number); }
  [[nodiscard]] std::string_view site(std::uint32_t number) const noexcept override {
    return number < sites_.size() ? std::string_view{sites_[number].name} : std::string_view{};
  }
  [[nodiscard]] std::string stack(std::uint32_t site) const override;

  void set_source(follow::Source const& source) noexcept { source_ = &source; }
  [[nodiscard]] std::uint32_t tag_number(std::string_view text) { return tags_.intern(text); }
  [[nodiscard]] std::uint32_t site_number(std::string_view text);
  /// By the ids of the source, which stay what they are while it is read. Sites of one name may have stacks of their own.
  [[nodiscard]] std::uint32_t tag_of(std::uint32_t id);
  [[nodiscard]] std::uint32_t site_of(std::uint32_t id);
  [[nodiscard]] std::string label(std::uint32_t id) const;
  /// The same text, for as long as this lives: names of hooks and marks, of which a source has a bounded number.
  [[nodiscard]] std::string_view kept(std::string text);

private:
  follow::Source const* source_ = nullptr;
  std::set<std::string> kept_;  // nodes stay where they are
  follow::Names tags_{0xFFFF};
  struct Site {
    std::string name;
    std::uint32_t id = 0;  // of the source; 0: none that is known
  };
  static constexpr std::size_t kMostSites = std::size_t{1} << 20U;
  [[nodiscard]] std::uint32_t add_site(std::string name, std::uint32_t id);
  std::deque<Site> sites_{1};                                          // by number
  std::unordered_map<std::string_view, std::uint32_t> sites_by_name_;  // views into the deque, whose elements never move
  std::unordered_map<std::uint32_t, std::uint32_t> tag_numbers_, site_numbers_;
};

class Timeline::Impl {
public:
  Impl(std::unique_ptr<follow::Source> from, TimelineOptions wanted)
      : source{std::move(from)}, options{std::move(wanted)}, books{totals} {}

  [[nodiscard]] Result<void> play(TimelineVisitor& visitor);

  std::unique_ptr<follow::Source> source;  // of a history
  std::unique_ptr<follow::Model> model;    // of rings: it has the source then
  TimelineOptions options;
  TimelineTotals totals;
  TimelineTexts texts;
  TimelineBooks books;

private:
  [[nodiscard]] Result<void> play_history(TimelineVisitor& visitor);
  [[nodiscard]] Result<void> play_rings(TimelineVisitor& visitor);

  [[nodiscard]] TimelineProcess process_of(follow::Source const& from) const;
  [[nodiscard]] static TimelineLedger to_ledger(flight::LedgerSnapshot const& book);
  [[nodiscard]] bool is_wanted(flight::LedgerSnapshot const& book) const;
  /// Errors: invalid_argument.
  [[nodiscard]] Result<void> check_wanted(std::vector<flight::LedgerSnapshot> const& ledgers) const;
  [[nodiscard]] bool is_choice() const noexcept { return options.manager || options.device; }
  [[nodiscard]] std::uint64_t since_start(std::uint64_t ticks) const;

  // Histories.
  [[nodiscard]] std::optional<std::uint32_t> history_ledger(std::uint32_t cell);
  void play_event(flight::Event const& event);
  void play_mark(flight::Event const& event);

  // Rings: timeline_rings.cpp.
  class Rings;

  std::map<std::uint32_t, std::optional<std::uint32_t>> ids_;  // by cell; absent: not wanted
  std::optional<flight::ClockMap> clock_;
  std::uint64_t start_ticks_ = 0;
  std::uint64_t start_ns_ = 0;
  bool started_ = false;
  std::uint64_t last_ns_ = 0;
};

}  // namespace headroom::dump
