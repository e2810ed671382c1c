// The registry of raw doors, and what can be said of their blocks.
#include "manager/door_core.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>

#include <headroom/flight_reader.hpp>

#include "base/clock.hpp"
#include "flight/live_table.hpp"
#include "flight/recorder.hpp"
#include "flight/tag_names.hpp"
#include "manager/errors.hpp"

namespace headroom::manager {
namespace {

// All doors of the process. Never destroyed: blocks may be freed by destructors of static objects.
struct Doors {
  std::mutex mutex;  // held over the list and the names in it, never over a call
  std::vector<DoorCore*> all;
  std::vector<DoorCore*> closed;
};

Doors& doors() {
  static Doors& instance = *new Doors;
  return instance;
}

}  // namespace

Result<DoorCore*> DoorCore::open(GpuMemoryManager manager, RawDoorOptions options) {
  if (flight::in_forked_child()) return tl::unexpected{forked_child_error()};
  try {
    std::string name = manager.name();
    Doors& registry = doors();
    const std::scoped_lock lock{registry.mutex};
    const auto empty = std::ranges::find_if(registry.closed, [](DoorCore* door) {
      door->map_.drop_settled();
      return door->map_.size() == 0;
    });
    DoorCore* door = nullptr;
    if (empty != registry.closed.end()) {
      door = *empty;
      registry.closed.erase(empty);
      door->map_.start_over();
      door->misuses_.store(0, std::memory_order_relaxed);
      door->twice_.store(0, std::memory_order_relaxed);
    } else {
      // Room for the end of every door: closing one must not fail.
      registry.closed.reserve(registry.all.size() + 1);
      registry.all.reserve(registry.all.size() + 1);
      door = new DoorCore;
      registry.all.push_back(door);
    }
    door->route_ = manager.route_;
    door->manager_.emplace(std::move(manager));
    door->manager_name_ = std::move(name);
    door->options_ = options;
    door->handles_.store(1, std::memory_order_release);
    return door;
  } catch (std::bad_alloc const&) {
    return tl::unexpected{make_error(ErrorKind::io, Layer::manager, "the system has no memory for another raw door (40 KiB)")};
  }
}

void DoorCore::drop_handle() noexcept {
  if (handles_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // The registry's mutex may have been held, at the fork, by a thread that the child does not have.
  if (flight::in_forked_child()) return;
  map_.drop_settled();
  if (map_.size() == 0) map_.start_over();
  std::optional<GpuMemoryManager> last;  // ends after the lock: a manager's end takes locks of its own
  Doors& registry = doors();
  const std::scoped_lock lock{registry.mutex};
  std::swap(last, manager_);
  registry.closed.push_back(this);
}

std::vector<DoorCore*> DoorCore::all() {
  Doors& registry = doors();
  const std::scoped_lock lock{registry.mutex};
  return registry.all;
}

std::string DoorCore::manager_name() const {
  const std::scoped_lock lock{doors().mutex};
  return manager_name_;
}

std::string site_text(std::uint32_t site) {
  if (site == 0) return {};
  const auto view = flight::FlightView::of_this_process();
  return view ? view->label(site) : std::string{};
}

std::optional<MapEntry> look_up(PointerMap const& map, void const* address) {
  if (address == nullptr) return std::nullopt;
  auto found = map.find(address);
  return found ? found : map.find_around(address);
}

RawBlockInfo describe(MapEntry const& entry, void const* address) {
  Allocation const& block = entry.allocation;
  std::uint64_t ticks = entry.ticks;
  std::uint64_t word = 0;
  flight::LiveEntry slot;
  // A slot that another block has by now says nothing of this one, which was freed while we looked.
  if (block.slot_generation != 0 && flight::read_slot(block.slot, word, slot) &&
      flight::slot_generation(word) == block.slot_generation) {
    ticks = slot.ticks;
  }
  const std::uint64_t now = ticks_now();
  return {.base = block.pointer,
          .bytes = block.bytes,
          .offset = std::bit_cast<std::uint64_t>(address) - std::bit_cast<std::uint64_t>(block.pointer),
          .generation = entry.generation,
          .stream = {block.stream},
          .tag = flight::tag_name(block.tag),
          .site = site_text(block.site),
          .thread = entry.thread,
          .age = std::chrono::nanoseconds{ticks != 0 && now > ticks ? ticks_to_ns(now - ticks) : 0},
          .free_failed = entry.failed_frees != 0};
}

}  // namespace headroom::manager
