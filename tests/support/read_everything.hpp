// Everything that a reader does with a flight file, and what must be true of its answers whatever the file says. For files that were
// broken on purpose: by the fuzzer, and by damage_test bit by bit.
//
// Returns what is wrong, in one sentence; empty when nothing is. A crash, a hang or a read out of range is the sanitizers' to find.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/flight_check.hpp>
#include <headroom/flight_reader.hpp>

#include "base/utf8.hpp"

namespace headroom::flight {

class ReadEverything {
public:
  /// `bytes` as for FlightView::over. Whatever is refused must be refused with a message.
  [[nodiscard]] static std::string of(std::span<const std::byte> bytes) {
    auto const view = FlightView::over(bytes, "damaged");
    if (!view) return of_error(view.error());
    ReadEverything read;
    read.all(*view);
    for (bool const dead : {false, true}) read.check(*view, bytes.size(), dead);
    return std::move(read.problem_);
  }

private:
  [[nodiscard]] static std::string of_error(Error const& error) {
    if (error.message.empty()) return "an error without a message";
    if (!error.message.starts_with("damaged: ")) return "a message that does not name the file: " + error.message;
    auto const known =
        error.kind == ErrorKind::parse || error.kind == ErrorKind::unsupported || error.kind == ErrorKind::invalid_argument;
    return known ? std::string{} : "an error of an unexpected kind: " + error.to_string();
  }

  void expect(bool good, std::string_view what) {
    if (!good && problem_.empty()) problem_ = what;
  }
  void expect_text(std::string const& text) { expect(valid_utf8(text) == text, "a text that is no valid UTF-8, or holds a NUL"); }

  void all(FlightView const& view) {
    process(view);
    names(view);
    auto const ledgers = view.ledgers();
    for (auto const& ledger : ledgers) this->ledger(ledger);
    for (std::uint32_t cell = 0; cell < 2 * kLedgerCount; ++cell) {
      auto const words = view.words(cell);
      expect(words.allocated <= words.claimed && words.allocated <= words.peak, "allocated above claimed or peak");
    }
    live(view);
    auto const clock = view.clock();
    constexpr std::array<std::uint64_t, 6> kTicks{
        0, 1, 1'000'000, std::uint64_t{1} << 40, std::uint64_t{1} << 63, ~std::uint64_t{0}};
    for (auto const ticks : kTicks) {
      sum_ += clock.realtime_ns(ticks) ^ clock.monotonic_ns(ticks) ^ clock.duration_ns(ticks);
    }
    for (auto const start : {EventReader::Start::oldest, EventReader::Start::zero}) {
      for (bool const dead : {false, true}) events(view, start, dead);
    }
  }

  void check(FlightView const& view, std::size_t size, bool dead) {
    auto const result = check_flight(view, {.most_findings = 5, .dead = dead});
    expect(result.findings.size() == std::min<std::uint64_t>(result.found, 5), "findings that were neither kept nor capped");
    for (auto const& finding : result.findings) {
      expect(finding.offset < size, "a finding beyond the file");
      expect(!finding.text.empty(), "a finding without words");
      expect_text(finding.text);
    }
  }

  void process(FlightView const& view) {
    auto const info = view.process();
    for (auto const* text : {&info.program, &info.host, &info.version, &info.command, &info.boot_id}) expect_text(*text);
    expect(info.state <= ProcessState::failed, "a process state that is none");
    expect(info.exporter_state <= ExporterState::stopped, "an exporter state that is none");
    expect(view.liveness() <= Liveness::unknown, "a liveness that is none");
    expect(short_run(info.run).size() == 8, "a short run of another length");
  }

  void names(FlightView const& view) {
    constexpr std::array<std::uint32_t, 4> kHostileIds{0x7FFF'FFFF, 0x8000'0000, 0xFFFF'FFFE, 0xFFFF'FFFF};
    for (std::uint32_t id = 0; id < 64; ++id) expect_text(view.label(id));
    for (auto const id : kHostileIds) expect_text(view.label(id));
    expect(!view.name(0), "an entry 0");
  }

  void ledger(LedgerSnapshot const& ledger) {
    expect(ledger.allocated <= ledger.claimed && ledger.allocated <= ledger.peak,
           "a ledger with allocated above claimed or peak");
    expect(ledger.pressure <= PressureLevel::critical, "a pressure level that is none");
    for (auto const* text : {&ledger.name, &ledger.device_name, &ledger.device_uuid}) expect_text(*text);
    for (auto const& tag : ledger.tags) expect_text(tag.name);
    sum_ += ledger.failures() + ledger.remaining().value_or(0) + ledger.over_budget();
  }

  void live(FlightView const& view) {
    view.for_each_live([&](LiveAllocation const& allocation) {
      expect(allocation.state != SlotState::free, "a live allocation that is free");
      expect_text(view.label(allocation.tag));
      expect_text(view.label(allocation.site));
      sum_ += view.words(allocation.ledger).claimed;
    });
    for (auto const& operation : view.in_flight()) {
      expect(operation.operation != InFlight::none && operation.operation <= InFlight::dropping, "an operation that is none");
      expect_text(operation.thread_name);
    }
    for (auto const& lane : view.lanes()) expect_text(lane.thread_name);
    for (auto const& hook : view.hooks()) {
      expect(hook.running_since_ticks != std::uint64_t{0}, "a hook that runs since no time");
      expect_text(hook.name);
      expect_text(view.label(hook.ledger_id));
    }
    for (auto const& failure : view.first_failures()) {
      expect(static_cast<std::size_t>(failure.kind) < kErrorKindCount && static_cast<std::size_t>(failure.layer) < kLayerCount,
             "a first failure of no kind");
      expect_text(view.label(failure.site));
    }
  }

  /// accepted + lost = the distance that the cursors went: gaps say how much was lost, uncommitted records never count.
  void events(FlightView const& view, EventReader::Start start, bool dead) {
    EventReader reader{view, start};
    std::vector<Event> found;
    std::vector<Gap> gaps;
    reader.poll(found, gaps, dead);
    std::uint64_t accepted = 0;
    for (auto const& event : found) {
      if (!event.uncommitted) ++accepted;
      expect(event.kind != EventKind::none, "an event of kind 0");
      expect(!event.uncommitted || dead, "an uncommitted event of a living file");
      expect((event.words[0] & kRecordNumberMask) == (event.number & kRecordNumberMask), "an event with another's number");
      sum_ += event.bytes() + event.duration_ns() + event.tag() + event.ledger() + event.hook() + event.log() + event.thread();
      if (auto const kind = event.error_kind())
        expect(static_cast<std::size_t>(*kind) < kErrorKindCount, "an error kind that is none");
      if (auto const layer = event.error_layer()) expect(static_cast<std::size_t>(*layer) < kLayerCount, "a layer that is none");
    }
    expect(accepted == reader.accepted(), "accepted() is not the number of events");
    std::uint64_t lost = 0;  // wraps as lost() does, when damaged heads add up to more than 2^64
    for (auto const& gap : gaps) lost += gap.last_missing - gap.first_missing + 1;
    expect(lost == reader.lost(), "lost() is not what the gaps add up to");
    sort_timeline(found);
    // The file is quiet: the same again holds nothing new.
    found.clear();
    gaps.clear();
    reader.poll(found, gaps, dead);
    expect(found.empty() && gaps.empty(), "a second look at a quiet file found something");
  }

  std::string problem_;
  std::uint64_t sum_ = 0;  // keeps the optimiser from leaving out what nobody asks about
};

}  // namespace headroom::flight
