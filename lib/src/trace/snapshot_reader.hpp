// headroom: a memory snapshot of PyTorch as records.
//
// The file is read three times: for the references within the pickle (pickle::scan), for what must be known before the first record
// (SnapshotAnalysis), both when it is opened, and for the records. Memory therefore follows what is live, how many addresses there are,
// and what later entries still refer to; of the length of the history it has the few bits of pickle::Reuse for each entry. What 255
// entries or more share, such as a frame, stays to the end. Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trace/record_reader.hpp"
#include "trace/repeatable.hpp"
#include "trace/snapshot_analysis.hpp"
#include "trace/snapshot_names.hpp"
#include "trace/snapshot_walk.hpp"

namespace headroom::trace {

class SnapshotReader final : public RecordReader, public Walker {
public:
  SnapshotReader(std::string name, TraceCompression compression);

  /// The first two passes, and the beginning of the third. Errors: those of TraceReader::open.
  [[nodiscard]] Result<void> begin(OpenedSource source);

  [[nodiscard]] TraceFormat format() const noexcept override { return TraceFormat::torch_snapshot; }
  [[nodiscard]] std::span<std::uint64_t const> thread_ids() const noexcept override;
  [[nodiscard]] std::span<std::uint32_t const> devices() const noexcept override { return devices_; }
  void only_device(std::uint32_t device) override { devices_.assign(1, device); }
  [[nodiscard]] std::string_view name_of(std::uint32_t id) const noexcept override { return names_.name_of(id); }
  [[nodiscard]] std::string stack_of(std::uint32_t site) const override { return names_.stack_of(site); }
  [[nodiscard]] TorchSnapshot const* snapshot() const noexcept override { return &outline_.state; }

  /// Nodes of the pickle that are kept while the records are read, for tests.
  [[nodiscard]] std::uint64_t retained_nodes() const noexcept { return walk_ ? walk_->retained_nodes() : 0; }

private:
  void fill_batch() override;
  [[nodiscard]] Result<void> entry(EntryPlace const& place, pickle::Value const& value) override;
  [[nodiscard]] Result<void> record(EntryFields const& fields, EntryPlace const& place, pickle::Value const& value);

  void begin_devices_to(std::uint64_t last);
  void begin_device(std::uint32_t device, DeviceOutline& outline);

  SnapshotNames names_;
  SnapshotFields fields_;
  std::optional<Repeatable> file_;
  pickle::Reuse reuse_;
  SnapshotOutline outline_;
  std::vector<std::uint32_t> devices_;  // that are delivered
  std::size_t begun_ = 0;               // of devices_
  DeviceOutline* current_ = nullptr;    // of the device whose entries are read; null: it is not delivered
  std::uint32_t current_device_ = 0;
  std::uint64_t time_us_ = 0;           // of the entry before
  std::unique_ptr<SnapshotWalk> walk_;  // null: over
};

}  // namespace headroom::trace
