// headroom: a walk over a snapshot: its entries, segments and annotations, one after the other.
//
// A Walker is told of each as it is read from the file, so that memory does not grow with them. Whatever else the snapshot has is kept
// until the end (allocator_settings) or let go. Errors: those of pickle::Machine, and of the walker's functions.
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <headroom/error.hpp>

#include "trace/byte_source.hpp"
#include "trace/pickle/machine.hpp"
#include "trace/snapshot_fields.hpp"

namespace headroom::trace {

/// By default interested in nothing.
class Walker {
public:
  Walker() = default;
  Walker(Walker const&) = delete;
  Walker& operator=(Walker const&) = delete;
  virtual ~Walker() = default;

  /// An entry of a device's trace, in their order.
  [[nodiscard]] virtual Result<void> entry(EntryPlace const& /*place*/, pickle::Value const& /*value*/) { return {}; }
  /// `number` from 1.
  [[nodiscard]] virtual Result<void> segment(std::uint64_t /*number*/, pickle::Value const& /*value*/) { return {}; }
  [[nodiscard]] virtual Result<void> annotation(pickle::Value const& /*value*/) { return {}; }
};

class SnapshotWalk final : public pickle::Visitor {
public:
  SnapshotWalk(std::unique_ptr<ByteSource> bytes, std::string const& name, pickle::Reuse const& reuse, Walker& walker);

  /// Reads on until the walker was told of something, or a little further; false = the snapshot is over.
  [[nodiscard]] Result<bool> advance();
  /// After the end.
  [[nodiscard]] pickle::Value const& root() const noexcept { return machine_.root(); }
  [[nodiscard]] std::uint64_t retained_nodes() const noexcept { return machine_.retained_nodes(); }

  [[nodiscard]] bool takes_items_of(pickle::Path const& list) override;
  [[nodiscard]] Result<void> item(pickle::Path const& item, pickle::Value const& value) override;

private:
  [[nodiscard]] Result<void> rest();
  [[nodiscard]] Result<void> entry(std::uint64_t device, std::uint64_t index, pickle::Value const& value);
  [[nodiscard]] tl::unexpected<Error> wrong(pickle::Value const& at, std::string const& what) const;

  std::unique_ptr<ByteSource> bytes_;
  std::string name_;
  Walker& walker_;
  pickle::Machine machine_;
};

}  // namespace headroom::trace
