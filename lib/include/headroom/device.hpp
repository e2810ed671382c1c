// headroom: devices and the resources that hand out their memory.
// Layer: device
//
// A DeviceResource is one layer of a stack that ends in a driver (or in the host's stand-in for one). Every layer passes bytes,
// alignment, stream and tag on unchanged. Implement allocate and deallocate to bring your own; everything else has an honest
// default that says `unsupported` or "unknown".
//
// Ownership: decorators own their inner resource; a Device shares its resource with every manager made from it.
// Thread safety: every member of a DeviceResource may be called from any thread at any time. headroom calls it with no lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <headroom/error.hpp>

namespace headroom {

/// A stream of a device; 0 is the default stream. On CUDA this is the value of the cudaStream_t.
struct StreamId {
  std::uint64_t value = 0;
  friend bool operator==(StreamId, StreamId) = default;
};

/// Smallest alignment ever given out, in bytes; a smaller request is raised to it.
inline constexpr std::uint64_t kMinimumAlignment = 256;

struct AllocRequest {
  std::uint64_t bytes = 0;                      ///< 0 succeeds and holds no memory
  std::uint64_t alignment = kMinimumAlignment;  ///< bytes, a power of two
  StreamId stream{};                            ///< where the first use will be enqueued
  std::uint16_t tag = 0;                        ///< see AllocTag; resources only pass it on
  bool reserved = false;                        ///< reserve() has claimed the bytes already: a budget takes them from there
};

/// Hears when memory that was freed is really the device's again: at once, or when a stream-ordered free was reaped, by whichever
/// thread reaped it. Must outlive every block that names it, and may not call back into the resource.
class ReturnSink {
public:
  virtual void returned(std::uint64_t bytes) noexcept = 0;

protected:
  ~ReturnSink() = default;
};

/// Memory that a resource handed out. `generation` tells a reused address from the block it once was.
struct Block {
  void* pointer = nullptr;  ///< null exactly for zero bytes
  std::uint64_t bytes = 0;  ///< as requested, not rounded
  std::uint64_t alignment = kMinimumAlignment;
  StreamId stream{};
  std::uint64_t generation = 0;
  std::int32_t device = 0;
  std::uint16_t tag = 0;
  ReturnSink* returns_to =
      nullptr;  ///< only of a block on its way to deallocate: set by a budget, called by the resource below it
};

/// What a launch does to a block.
enum class UseKind : std::uint8_t { read, write };

/// What is known of a device's memory, in bytes. Unknown is absent, never zero.
struct MemoryInfo {
  std::optional<std::uint64_t> total{};
  std::optional<std::uint64_t> free{};
  /// What the resource has taken from the device beyond the bytes it handed out: its caches, and what it rounds up to.
  std::optional<std::uint64_t> slack{};
};

/// The budget of a resource that has one (decorators; a plain resource has none).
struct BudgetSnapshot {
  std::uint64_t limit_bytes = 0;
  std::uint64_t claimed_bytes = 0;
};

/// How hard reap_pending tries. To make room for one request without waiting for more than it needs: query, then synchronize_next
/// until it fits or 0 comes back.
enum class ReapMode : std::uint8_t {
  query,             ///< takes the frees that are finished, waits for none
  synchronize,       ///< waits for all frees
  synchronize_next,  ///< waits for the free that finishes first, then takes what is finished
};

/// The largest request, 16 TiB − 1: ledgers count bytes in 44 bits. Resources refuse more as `overflow`.
inline constexpr std::uint64_t kLargestRequest = (std::uint64_t{1} << 44) - 1;

class DeviceResource {
public:
  DeviceResource() noexcept;
  DeviceResource(DeviceResource const&) = delete;
  DeviceResource& operator=(DeviceResource const&) = delete;
  virtual ~DeviceResource() = default;

  /// Hands out request.bytes at request.alignment, usable on request.stream.
  /// Errors: device_out_of_memory (with device_free), overflow, invalid_argument (alignment), stream_misuse, driver.
  [[nodiscard]] virtual Result<Block> allocate(AllocRequest const& request) = 0;

  /// Takes a block back, ordered after the work already enqueued on block.stream. After an error the block is still owned by the
  /// caller, and the call may be repeated. Errors: use_after_free, double_free, unknown_pointer, wrong_size, driver.
  [[nodiscard]] virtual Result<void> deallocate(Block const& block) = 0;

  /// Sets block[offset, offset + bytes) to zero, ordered on `stream`. Errors: invalid_argument (range), driver, unsupported.
  [[nodiscard]] virtual Result<void> fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream);

  /// Copies host bytes to block[offset, …), ordered on `stream`; `source` may be reused when the call returns.
  [[nodiscard]] virtual Result<void> copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                             StreamId stream);

  /// Bytes handed out and not yet returned to the device: live blocks and frees still pending on a stream.
  [[nodiscard]] virtual std::uint64_t bytes_outstanding() const noexcept = 0;

  /// The finite budget of this stack, if it has one.
  [[nodiscard]] virtual std::optional<BudgetSnapshot> budget_snapshot() const noexcept;

  /// Claims bytes of that budget for later requests with `reserved` set, all or nothing. Touches no memory.
  /// Errors: over_budget (figures), unsupported (no finite budget: the default).
  [[nodiscard]] virtual Result<void> reserve(std::uint64_t bytes);
  /// The end of one reservation: gives back what no request used of it. Exactly once for each reserve() that succeeded, also when
  /// nothing is left (0): budgets count reservations as well as their bytes.
  virtual void unreserve(std::uint64_t bytes) noexcept;

  /// Finishes stream-ordered frees; returns the bytes that came back. A resource without pending frees returns 0.
  [[nodiscard]] virtual Result<std::uint64_t> reap_pending(ReapMode mode);

  /// Gives cached memory back to the device until at most `bytes_to_keep` are cached; returns the bytes given back. It takes nothing
  /// from anyone and waits for no one. Called before a shortage is believed: what lies in a cache cannot join the holes around it.
  /// A resource without a cache returns 0 (the default).
  [[nodiscard]] virtual Result<std::uint64_t> trim(std::uint64_t bytes_to_keep);

  /// The most that a block of so many bytes takes of the device's free memory. The default is `bytes` rounded up to kMinimumAlignment;
  /// a resource that hands out coarser pieces says so, or memory that was to be kept free is taken by rounding.
  [[nodiscard]] virtual std::uint64_t footprint(std::uint64_t bytes) const noexcept;

  /// True when a free that was accepted is followed by exactly one call of block.returns_to, with all of its bytes (of several frees
  /// in one call, if you like) and outside every lock. Where it is false (the default), budgets take memory for the device's again as
  /// soon as its free was accepted.
  [[nodiscard]] virtual bool reports_returns() const noexcept;

  /// Total and free memory of the device below, if it can be told without disturbing it. Once an allocation returned, `free` no longer
  /// has it: an account that keeps memory free relies on that.
  [[nodiscard]] virtual MemoryInfo memory_info() const noexcept;

  // ── streams, and uses on other streams than a block's own ──

  /// A new stream of the device. Errors: stream_misuse (none left), driver, unsupported (the default, as for the next two).
  [[nodiscard]] virtual Result<StreamId> create_stream();
  /// Ends a stream; work enqueued on it still finishes. Errors: stream_misuse (unknown, or the default stream).
  [[nodiscard]] virtual Result<void> destroy_stream(StreamId stream);
  /// Waits for all work enqueued on the stream. Errors: stream_misuse, driver.
  [[nodiscard]] virtual Result<void> synchronize_stream(StreamId stream);

  /// True when prepare_use, finish_use and record_use keep cross-stream order; the defaults refuse with `unsupported`.
  /// The rules: an allocation counts as the first write, on its own stream. A read waits for the last write; a write and the free
  /// wait for the last write and for all reads on other streams. On one stream nothing waits: it is ordered by itself.
  [[nodiscard]] virtual bool tracks_uses() const noexcept;
  /// Before a launch: makes `stream` wait, on the device, for what the use must come after. The host waits for nothing.
  /// Errors: use_after_free, unknown_pointer, stream_misuse, driver.
  [[nodiscard]] virtual Result<void> prepare_use(Block const& block, StreamId stream, UseKind kind);
  /// After the launch was enqueued: later uses, and the free, come after it. Errors: as prepare_use.
  [[nodiscard]] virtual Result<void> finish_use(Block const& block, StreamId stream, UseKind kind);
  /// finish_use for work that was enqueued without prepare_use, because the caller ordered it by other means.
  [[nodiscard]] virtual Result<void> record_use(Block const& block, StreamId stream, UseKind kind);

  /// A short word for logs, such as "host" or "cuda-async".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// True when the memory can be read and written by the host directly.
  [[nodiscard]] virtual bool host_accessible() const noexcept;

  /// The resource that this one decorates; null for one that ends in a driver.
  [[nodiscard]] virtual DeviceResource* inner() const noexcept;
  /// Identity of the physical device; empty when this very object is the device, as with stand-ins on the host.
  [[nodiscard]] virtual std::string_view device_uuid() const noexcept;

  /// Identity of this object: no other resource of the process has the number, or ever gets it, as it may get the address.
  [[nodiscard]] std::uint64_t instance() const noexcept { return instance_; }

private:
  std::uint64_t const instance_;
};

enum class DeviceKind : std::uint8_t { host, cuda, custom };

/// Which physical device: the same words in the flight file, metrics, listings and errors. Two outputs that show the same UUID, or
/// the same PCI address, speak of the same device; the ordinal depends on who counts. See gpu_identity() for what CUDA reports.
struct DeviceIdentity {
  std::int32_t ordinal = 0;  ///< as CUDA shows it to this process
  std::string uuid;          ///< `GPU-…`, or `MIG-…` of an instance; empty = unknown
  std::string pci_address;   ///< `0000:65:00.0`, lower case; empty = unknown
};

/// A device to allocate on: identity plus its default resource. A cheap handle; copies are the same device.
class Device {
public:
  /// A device over any resource. `ordinal` is the index as CUDA would show it; `uuid` may be empty when unknown.
  /// Errors: invalid_argument (no resource).
  [[nodiscard]] static Result<Device> custom(std::string name, std::shared_ptr<DeviceResource> resource, std::int32_t ordinal = 0,
                                             std::string uuid = {}, DeviceKind kind = DeviceKind::custom);

  /// The same with a PCI address, which may be written in any of the usual ways and is kept in ours.
  /// Errors: invalid_argument (no resource; a PCI address that is none).
  [[nodiscard]] static Result<Device> custom(std::string name, std::shared_ptr<DeviceResource> resource, DeviceIdentity identity,
                                             DeviceKind kind);

  [[nodiscard]] DeviceKind kind() const noexcept;
  [[nodiscard]] std::int32_t ordinal() const noexcept;
  [[nodiscard]] std::string const& name() const noexcept;
  [[nodiscard]] std::string const& uuid() const noexcept;         ///< empty = unknown
  [[nodiscard]] std::string const& pci_address() const noexcept;  ///< empty = unknown
  [[nodiscard]] DeviceResource& resource() const noexcept;
  [[nodiscard]] std::shared_ptr<DeviceResource> const& shared_resource() const noexcept;
  [[nodiscard]] MemoryInfo memory_info() const noexcept;

  /// Same device object (not merely the same ordinal).
  friend bool operator==(Device const& a, Device const& b) noexcept { return a.state_ == b.state_; }

private:
  struct State;
  explicit Device(std::shared_ptr<State const> state) noexcept;
  std::shared_ptr<State const> state_;
};

}  // namespace headroom
