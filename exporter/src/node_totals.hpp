// headroom: what a process has counted in all, as sums that outlive its series.
//
// A node exporter's series come and go with processes and managers; sums over them must not fall because of that. So each process has
// Totals of its lifetime, as plain numbers, and Totals of what its series show at this moment; the difference, and the lifetime of
// processes that have no series any more, is served as headroom_exited_*_total.
//
// Not in here, since they have no meaning beyond their owner: figures of tags and of hooks, histograms.
//
// Thread safety: plain values. Cost: 1.3 KiB each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <headroom/error.hpp>
#include <headroom/flight_reader.hpp>

#include "families.hpp"

namespace headroom::exporter {

/// Figures that only grow. Sums of them stop at the largest number instead of wrapping: files may be hostile.
class Totals {
public:
  /// Of a ledger, read from its counters: what LedgerSnapshot::earlier has, too.
  enum class Counter : std::uint8_t { allocations, frees, allocation_bytes, deallocation_bytes };
  static constexpr std::size_t kCounters = 4;

  [[nodiscard]] static Totals of_ledger(flight::LedgerSnapshot const& ledger);
  [[nodiscard]] static Totals of_earlier(flight::EarlierSums const& earlier);
  [[nodiscard]] static Totals of_recorder(flight::ProcessInfo const& process);

  /// The four counters alone, and everything but them.
  [[nodiscard]] Totals counters() const;
  [[nodiscard]] Totals without_counters() const;

  Totals& operator+=(Totals const& other) noexcept;
  [[nodiscard]] friend Totals operator+(Totals left, Totals const& right) noexcept { return left += right; }
  /// Figure by figure, never below 0.
  [[nodiscard]] Totals beyond(Totals const& part) const noexcept;
  /// Figure by figure the larger.
  [[nodiscard]] Totals or_more(Totals const& other) const noexcept;

  [[nodiscard]] std::uint64_t operator[](Counter counter) const noexcept { return figures_[static_cast<std::size_t>(counter)]; }
  friend bool operator==(Totals const&, Totals const&) = default;

  /// As headroom_exited_*_total. The plain figures are there from the start, with 0; those by reason, layer, level or policy when they
  /// have something to say.
  void add_to(Families& families, Labels const& labels) const;

private:
  // Places of the figures: counters, refusals by kind and layer, failed frees by kind, transitions by levels, policies, the rest.
  static constexpr std::size_t kLevels = 5;
  static constexpr std::size_t kRefusals = kCounters;
  static constexpr std::size_t kFreeFailures = kRefusals + kErrorKindCount * kLayerCount;
  static constexpr std::size_t kTransitions = kFreeFailures + kErrorKindCount;
  static constexpr std::size_t kPolicyRuns = kTransitions + kLevels * kLevels;
  static constexpr std::size_t kRecoveries = kPolicyRuns + flight::kOomPolicyCount;
  static constexpr std::size_t kGaveUp = kRecoveries + flight::kOomPolicyCount;
  static constexpr std::size_t kWaits = kGaveUp + 1;
  static constexpr std::size_t kWaitNs = kWaits + 1;
  static constexpr std::size_t kCheckpoints = kWaitNs + 1;
  static constexpr std::size_t kRecorded = kCheckpoints + 1;
  static constexpr std::size_t kRefusedNoLane = kRecorded + 1;
  static constexpr std::size_t kRefusedReentrant = kRefusedNoLane + 1;
  static constexpr std::size_t kRefusedEarly = kRefusedReentrant + 1;
  static constexpr std::size_t kTagsFolded = kRefusedEarly + 1;
  static constexpr std::size_t kFigures = kTagsFolded + 1;
  [[nodiscard]] static constexpr std::size_t refusal(std::size_t kind, std::size_t layer) noexcept {
    return kRefusals + kind * kLayerCount + layer;
  }
  [[nodiscard]] static constexpr std::size_t transition(std::size_t from, std::size_t to) noexcept {
    return kTransitions + from * kLevels + to;
  }

  std::array<std::uint64_t, kFigures> figures_{};
};

}  // namespace headroom::exporter
