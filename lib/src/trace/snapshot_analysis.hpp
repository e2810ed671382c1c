// headroom: what must be known of a snapshot before its entries can be told as a history.
//
// One walk over the file: the segments and annotations, which kind of entry is a free, what each device held before its first entry, and
// which devices have records at all. It does not matter whether the segments stand before the traces or behind them.
// Thread safety: one thread at a time. Memory: that of Beginning, and the state at the end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/torch_snapshot.hpp>

#include "trace/pickle/value.hpp"
#include "trace/snapshot_beginnings.hpp"
#include "trace/snapshot_fields.hpp"
#include "trace/snapshot_walk.hpp"

namespace headroom::trace {

/// What the telling of a device's entries needs.
struct DeviceOutline {
  bool completes = false;                 ///< its frees are free_completed; else free_requested
  std::uint64_t first_time_us = 0;        ///< of the first entry; 0 without one
  std::vector<FromBefore> from_before{};  ///< by address
};

struct SnapshotOutline {
  TorchSnapshot state;
  std::map<std::uint32_t, DeviceOutline> devices;  ///< those that have records
};

class SnapshotAnalysis final : public Walker {
public:
  SnapshotAnalysis(std::string const& name, SnapshotNames& names) : fields_{name, names} {}

  [[nodiscard]] Result<void> entry(EntryPlace const& place, pickle::Value const& value) override;
  [[nodiscard]] Result<void> segment(std::uint64_t number, pickle::Value const& value) override;
  [[nodiscard]] Result<void> annotation(pickle::Value const& value) override;

  /// After the walk.
  [[nodiscard]] SnapshotOutline finish(pickle::Value const& root);

private:
  struct Device {
    DeviceBeginning beginning;
    std::uint64_t first_time_us = 0;
    bool has_entries = false;
    bool has_allocations = false;  // or failures
    bool has_free_requests = false;
  };

  [[nodiscard]] Result<FromBefore> block_of(EntryFields const& fields, EntryPlace const& place, pickle::Value const& value);
  [[nodiscard]] Result<void> book(EntryFields const& fields, EntryPlace const& place, pickle::Value const& value, Device& device);
  void find_from_before(TorchSegment const& segment, TorchBlock const& block);

  SnapshotFields fields_;
  TorchSnapshot state_;
  std::map<std::uint32_t, Device> devices_;
};

}  // namespace headroom::trace
