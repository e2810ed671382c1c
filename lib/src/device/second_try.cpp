#include "device/second_try.hpp"

#include <string>
#include <thread>
#include <utility>

#include <headroom/byte_size.hpp>

#include "base/thrown_error.hpp"
#include "device/patience.hpp"

namespace headroom::device {
namespace {

// Each round takes at least one pending free away; other threads may add as many meanwhile, and this one must end all the same.
constexpr std::uint64_t kManyRounds = 100'000;
// Looks at a full device on which nothing is pending and nothing moves. More than one: another thread may have reaped and allocated
// between two of our steps, which leaves the figures as they were.
constexpr int kLooksAtFullDevice = 3;
// Trims after which a request that should fit was refused all the same, before a second of them is enough. A pool may keep what it took
// for a request that it then refused, and each trim finds that again; on a GPU such a round takes a third of a second.
constexpr int kTrimsInVain = 8;

// Bytes that came back; nothing when the resource cannot be asked any more.
std::optional<std::uint64_t> reap(DeviceResource& resource, ReapMode mode) noexcept {
  try {
    const Result<std::uint64_t> reaped = resource.reap_pending(mode);
    return reaped ? std::optional{*reaped} : std::nullopt;
  } catch (...) {
    return std::nullopt;
  }
}

// A cache that cannot be asked gives nothing.
std::uint64_t trim_all(DeviceResource& resource) noexcept {
  try {
    return resource.trim(0).value_or(0);
  } catch (...) {
    return 0;
  }
}

bool is_shortage(Result<Block> const& block) noexcept { return !block && block.error().kind == ErrorKind::device_out_of_memory; }

// Neither pending frees nor caches can help a request above the whole device.
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

// What has come back since the shortage.
struct MadeRoom {
  std::uint64_t frees = 0, caches = 0;
};

void say_what_was_tried(Result<Block>& block, MadeRoom const& made) noexcept {
  if (!is_shortage(block) || (made.frees == 0 && made.caches == 0)) return;
  std::string& message = block.error().message;
  // Without memory for more words what the device said stays as it is.
  auto full = words([&] {
    std::string text = message;
    if (made.frees != 0) text += "; " + format_bytes(made.frees) + " of pending frees came back and did not suffice";
    if (made.caches != 0) text += "; " + format_bytes(made.caches) + " of cached memory were given back and did not suffice";
    return text;
  });
  if (!full.empty()) message = std::move(full);
}

}  // namespace

Result<Block> ask_again_if_short(DeviceResource& resource, AllocRequest const& request, Result<Block> block,
                                 SecondTry& again) noexcept {
  if (!is_shortage(block) || !can_ever_fit(resource, request)) return block;
  MadeRoom made;
  std::uint64_t since_attempt = 0;  // came back from frees since the last try
  Patience patience;
  int looks = 0;
  int trims = 0;
  bool can_reap = true;
  std::optional<std::uint64_t> seen_free = block.error().device_free;
  ReapMode mode = ReapMode::query;
  for (std::uint64_t round = 0; is_shortage(block); ++round) {
    if (round >= kManyRounds && patience.is_long()) break;
    const std::optional<std::uint64_t> reaped = can_reap ? reap(resource, mode) : std::nullopt;
    can_reap = reaped.has_value();
    made.frees += reaped.value_or(0);
    since_attempt += reaped.value_or(0);
    const bool nothing_pending = !can_reap || (*reaped == 0 && mode == ReapMode::synchronize_next);
    mode = ReapMode::synchronize_next;
    if (nothing_pending && since_attempt == 0) {
      const std::uint64_t cached = trim_all(resource);
      if (cached != 0) {
        made.caches += cached;
        again.trimmed(cached);
        // Whoever fills the cache again, time and again, overtakes us; or it is the request itself, and there is no room.
        if (++trims > kTrimsInVain && patience.is_long()) break;
      } else if (!can_reap || !was_full(request, block.error())) {
        break;
      }
      const std::optional<std::uint64_t> free = again.free_now();
      const bool moved = free && free != seen_free;
      seen_free = free;
      if (cached == 0 ? !moved : free && *free < request.bytes) {
        if (++looks >= kLooksAtFullDevice) break;
        std::this_thread::yield();
        continue;
      }
      // Nothing is pending although the figures moved: another thread reaped what we wanted.
      if (cached == 0 && patience.overtaken()) break;
    } else if (since_attempt == 0 || (!nothing_pending && is_hopeless(request, block.error(), since_attempt))) {
      continue;  // the next free that finishes may do it
    }
    since_attempt = 0;
    looks = 0;
    block = again.ask();
    if (!block) seen_free = block.error().device_free;
  }
  say_what_was_tried(block, made);
  return block;
}

}  // namespace headroom::device
