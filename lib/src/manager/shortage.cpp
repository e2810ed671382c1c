#include "manager/shortage.hpp"

#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <headroom/byte_size.hpp>

namespace headroom::manager {
namespace {

// Each round takes at least one pending free away; other threads may add as many meanwhile, and this one must end all the same.
constexpr int kMostRounds = 100'000;
// Rounds in which nothing was pending although the device's figures moved: another thread reaped what we wanted.
constexpr int kMostOvertaken = 16;
// Looks at a full device on which nothing is pending and nothing moves. More than one: another thread may have reaped and allocated
// between two of our steps, which leaves the figures as they were.
constexpr int kLooksAtFullDevice = 3;

// Bytes that came back; nothing when the resource cannot be asked any more.
std::optional<std::uint64_t> reap(DeviceResource& resource, ReapMode mode) noexcept {
  try {
    const Result<std::uint64_t> reaped = resource.reap_pending(mode);
    return reaped ? std::optional{*reaped} : std::nullopt;
  } catch (...) {
    return std::nullopt;
  }
}

bool is_shortage(Result<Block> const& block) noexcept { return !block && block.error().kind == ErrorKind::device_out_of_memory; }

// Pending frees cannot help a request above the whole device.
bool can_ever_fit(DeviceResource const& resource, AllocRequest const& request) noexcept {
  const MemoryInfo memory = resource.memory_info();
  return !memory.total || request.bytes <= *memory.total;
}

// The device was too full for the request when it refused, by its own figures. One that refuses with room enough (fragmentation, a
// failure) is believed.
bool was_full(AllocRequest const& request, Error const& refused) noexcept {
  return refused.device_free && *refused.device_free < request.bytes;
}

// Asking again would fail, and cost a call into the driver.
bool is_hopeless(AllocRequest const& request, Error const& refused, std::uint64_t came_back) noexcept {
  return refused.device_free && *refused.device_free + came_back < request.bytes;
}

bool has_moved_since(DeviceResource const& resource, Error const& refused) noexcept {
  const MemoryInfo memory = resource.memory_info();
  return memory.free && memory.free != refused.device_free;
}

}  // namespace

Result<void> reap_all(DeviceResource& resource) noexcept {
  try {
    return resource.reap_pending(ReapMode::synchronize).map([](std::uint64_t) {});
  } catch (std::exception const& thrown) {
    return fail(ErrorKind::driver, Layer::resource, resource_threw(thrown.what()));
  } catch (...) {
    return fail(ErrorKind::driver, Layer::resource, resource_threw(nullptr));
  }
}

Result<Block> ask_again_if_short(DeviceResource& resource, AllocRequest const& request, Result<Block> block) noexcept {
  if (!is_shortage(block) || !can_ever_fit(resource, request)) return block;
  std::uint64_t came_back = 0;      // since the shortage
  std::uint64_t since_attempt = 0;  // … since the last try
  int overtaken = 0;
  int looks = 0;
  ReapMode mode = ReapMode::query;
  for (int round = 0; round < kMostRounds && is_shortage(block); ++round) {
    const std::optional<std::uint64_t> reaped = reap(resource, mode);
    if (!reaped) break;
    came_back += *reaped;
    since_attempt += *reaped;
    const bool nothing_pending = *reaped == 0 && mode == ReapMode::synchronize_next;
    mode = ReapMode::synchronize_next;
    if (nothing_pending && since_attempt == 0) {
      if (!was_full(request, block.error())) break;
      if (!has_moved_since(resource, block.error())) {
        if (++looks == kLooksAtFullDevice) break;
        std::this_thread::yield();
        continue;
      }
      if (++overtaken > kMostOvertaken) break;
    } else if (since_attempt == 0 || (!nothing_pending && is_hopeless(request, block.error(), since_attempt))) {
      continue;  // the next free that finishes may do it
    }
    since_attempt = 0;
    looks = 0;
    block = ask_for_block(resource, request);
  }
  if (is_shortage(block) && came_back != 0) {
    block.error().message += "; " + format_bytes(came_back) + " of pending frees came back and did not suffice";
  }
  return block;
}

}  // namespace headroom::manager
