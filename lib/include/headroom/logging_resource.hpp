// headroom: a layer of a resource stack that writes down what passes through it.
// Layer: device
//
// Put a LoggingResource where you want to see what a layer was asked and what it answered: above the device's own resource to log
// what reaches the driver, above a budget to log refusals too. Every allocation and free becomes one event in the flight file, in the
// lane of its thread: time, thread, action, address, bytes as requested, alignment, stream, tag, and for a failure who said no and
// why. Nothing else changes: requests and errors go through as they are, and calls that are about no block (trims, reaps, streams)
// without a line. To get the events as lines (RMM's CSV columns, a callback, memory) start a LogFollower; without one the newest
// events can still be read from the flight file.
//
// When: one event for each call, after its outcome, so that a refusal stands there as a failed allocation with its size and no
// address. A line's time is when the address changed hands: an allocation's is when it was delivered, a free's when it was asked for,
// so that lines sorted by time never show an address given out again before it was freed.
//
// Ownership: shares its inner resource. Several may exist, one above the other too; each has a number and a name.
// Thread safety: any member from any thread. No lock is taken and no memory allocated.
// Cost: one event a call and two counts (`headroom_bench --benchmark_filter=null_resource` measures it); 4 KiB of counters each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <headroom/device.hpp>
#include <headroom/error.hpp>
#include <headroom/flight_format.hpp>
#include <headroom/resource_decorator.hpp>

namespace headroom {

namespace flight {
struct LogCounts;
}  // namespace flight

class LoggingResource final : public ResourceDecorator {
public:
  /// Logs what passes to `inner`. The name stands in the flight file's directory; empty: the inner resource's.
  /// Errors: invalid_argument (as InnerResource::check), io (no memory for the flight file), unsupported (in a forked child).
  [[nodiscard]] static Result<std::shared_ptr<LoggingResource>> create(std::shared_ptr<DeviceResource> inner,
                                                                       std::string_view name = {});
  ~LoggingResource() override;

  /// Identity in this process, from 1: what LogLine::log and the events carry. Not given again before 2^24 others.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] std::string const& label() const noexcept { return label_; }
  /// Calls of allocate and deallocate that had an outcome so far, whether anyone read their events or not.
  [[nodiscard]] std::uint64_t operations() const noexcept;

  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override;
  [[nodiscard]] Result<void> deallocate(Block const& block) override;

  [[nodiscard]] std::string_view name() const noexcept override;  ///< "logging"

  class Key;  // only create() has one
  LoggingResource(Key, InnerResource inner, std::string_view name);

private:
  friend class LogFollower;  // counts what was lost with the same counters
  void write(flight::EventKind kind, std::uint64_t ticks, AllocRequest const& request, std::uint64_t address,
             Error const* error) const noexcept;
  void write(flight::EventKind kind, std::uint64_t ticks, Block const& block, Error const* error) const noexcept;

  std::shared_ptr<flight::LogCounts> counts_;  // outlives this where a follower still reads
  std::string label_;
  std::uint32_t number_;
  std::uint32_t directory_id_;
};

class LoggingResource::Key {
  friend class LoggingResource;
  explicit Key() = default;
};

}  // namespace headroom
