// headroom: what was live before a recorded trace begins.
//
// A trace of which the beginning is missing still names most of what was live then: whatever it frees and has never mentioned before,
// and whatever is active at the end and was never mentioned at all. Entries are told one by one, the active blocks at last.
// Thread safety: none. Memory: some bytes for each different address of the trace, however long it is, and what is found.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/address_counts.hpp"

namespace headroom::trace {

struct FromBefore {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stream = 0;
  std::uint32_t tag = 0;
  std::uint32_t site = 0;
};

/// Of one device, and of one kind of entry that is the free.
class Beginning {
public:
  void allocate(std::uint64_t address) { ++addresses_.add(address); }

  void free(FromBefore const& block) {
    if (auto* const live = addresses_.find(block.address); live != nullptr) {
      if (*live != 0) --*live;  // else it was freed before: a second free says nothing of the beginning
      return;
    }
    addresses_.add(block.address) = 0;
    found_.push_back(block);
  }

  enum class Active : std::uint8_t { allocated, from_before, unexplained };
  /// A block that is active when all entries were told. Unexplained: the trace has freed what was there.
  Active active(FromBefore const& block) {
    if (auto const* const live = addresses_.find(block.address); live != nullptr) {
      return *live != 0 ? Active::allocated : Active::unexplained;
    }
    addresses_.add(block.address) = 0;  // an address that is named twice is believed once
    found_.push_back(block);
    return Active::from_before;
  }

  /// All that was found, by address; nothing is left.
  [[nodiscard]] std::vector<FromBefore> take();

private:
  AddressCounts addresses_;  // that were mentioned, and how many blocks are live there
  std::vector<FromBefore> found_;
};

/// Both readings of a trace at once: which one counts is known only at its end.
class DeviceBeginning {
public:
  void allocate(std::uint64_t address) {
    by_completion_.allocate(address);
    if (!completes_) by_request_->allocate(address);
  }
  void free_requested(FromBefore const& block) {
    if (!completes_) by_request_->free(block);
  }
  void free_completed(FromBefore const& block) {
    if (!completes_) by_request_.reset();
    completes_ = true;
    by_completion_.free(block);
  }

  /// The trace has free_completed entries, so that these are its frees.
  [[nodiscard]] bool completes() const noexcept { return completes_; }
  [[nodiscard]] Beginning& beginning() noexcept { return completes_ ? by_completion_ : *by_request_; }

private:
  Beginning by_completion_;
  std::optional<Beginning> by_request_{Beginning{}};
  bool completes_ = false;
};

}  // namespace headroom::trace
