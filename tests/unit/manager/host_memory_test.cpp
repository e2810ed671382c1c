// Without host memory: refusals, frees and doors keep the books right, no exception leaves the library, and nothing ends the process.
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <source_location>
#include <utility>

#include <headroom/raw_door.hpp>

#include "host_memory.hpp"
#include "managers.hpp"
#include "scripted_resource.hpp"

namespace headroom::test {
namespace {

// What a stack frame held before: an owner that nobody filled would free this.
[[gnu::noinline]] void leave_traces() {
  volatile std::uint8_t bytes[4096];
  for (auto& byte : bytes) byte = 0x5A;
}

struct Refused {
  bool threw = false;
  std::optional<Error> error{};
};

template <class Call>
[[gnu::noinline]] Refused without_host_memory(Call&& call) {
  Refused refused;
  try {
    const HostMemoryEnds ends;
    auto result = call();
    if (!result) refused.error = std::move(result.error());
  } catch (std::bad_alloc const&) {
    refused.threw = true;
  }
  return refused;
}

void expect_refused(Refused const& refused, ErrorKind kind, Layer layer) {
  EXPECT_FALSE(refused.threw) << "an exception left the library";
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->kind, kind);
  EXPECT_EQ(refused.error->layer, layer);
}

TEST(WithoutHostMemory, refusals_keep_kind_and_figures_and_free_nothing) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto held = manager.alloc<std::byte>(600).value();
  const AllocOptions odd{.alignment = 3};
  auto reservation = manager.reserve_bytes(100).value();
  auto released = manager.reserve_bytes(100).value();
  released.release();
  GpuMemoryReservation empty;
  // Once with memory, so that this thread and these call sites are known: what is made for good may need some.
  for (const bool memory : {true, false}) {
    const auto refused_by = [&](auto&& call) {
      leave_traces();
      if (!memory) return without_host_memory(call);
      auto result = call();
      return Refused{.error = result ? std::nullopt : std::optional{result.error()}};
    };
    const auto over = refused_by([&] { return manager.alloc<std::byte>(400); });
    expect_refused(over, ErrorKind::over_budget, Layer::manager);
    EXPECT_EQ(over.error->requested, 400U);
    EXPECT_EQ(over.error->current, 700U);
    EXPECT_EQ(over.error->limit, 1000U);
    EXPECT_EQ(over.error->holders[0].bytes, 600U);
    expect_refused(refused_by([&] { return manager.alloc<float>(SIZE_MAX); }), ErrorKind::overflow, Layer::request);
    expect_refused(refused_by([&] { return manager.alloc<std::byte>(std::uint64_t{1} << 44); }), ErrorKind::overflow,
                   Layer::request);
    expect_refused(refused_by([&] { return manager.alloc<std::byte>(1, odd); }), ErrorKind::invalid_argument, Layer::request);
    expect_refused(refused_by([&] { return manager.alloc_raw(1, AllocTag{}); }), ErrorKind::no_runtime, Layer::request);
    expect_refused(refused_by([&] { return reservation.alloc<std::byte>(101); }), ErrorKind::over_budget, Layer::request);
    expect_refused(refused_by([&] { return released.alloc<std::byte>(1); }), ErrorKind::invalid_argument, Layer::request);
    expect_refused(refused_by([&] { return empty.alloc<std::byte>(1); }), ErrorKind::invalid_argument, Layer::request);
    expect_refused(refused_by([&] { return manager.reserve_bytes(301); }), ErrorKind::over_budget, Layer::manager);
    EXPECT_EQ(manager.claimed_bytes(), 700U);
    EXPECT_EQ(manager.live_allocations(), 1U);
    EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
  }
}

TEST(WithoutHostMemory, a_tag_that_finds_no_memory_counts_as_other) {
  auto manager = null_manager(MemoryBudget::unlimited());
  auto warm = manager.alloc<std::byte>(10).value();
  const AllocTag tag{"no-memory-for-this-name"};
  Result<TrackedBuffer<std::byte>> buffer;
  {
    const HostMemoryEnds ends;
    buffer = manager.alloc<std::byte>(100, tag);
  }
  ASSERT_TRUE(buffer);
  EXPECT_EQ(tag_bytes(snapshot_of(manager), "other"), 100U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

/// A user's resource that needs host memory and has none.
class OutOfHostMemory final : public DeviceResource {
public:
  bool out_of_memory = true;
  Result<Block> allocate(AllocRequest const& request) override {
    if (out_of_memory) throw std::bad_alloc{};
    return Block{.pointer = this, .bytes = request.bytes, .alignment = request.alignment, .generation = 1};
  }
  Result<void> deallocate(Block const& /*block*/) override {
    if (out_of_memory) throw std::bad_alloc{};
    return {};
  }
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  [[nodiscard]] std::string_view name() const noexcept override { return "out of host memory"; }
};

TEST(WithoutHostMemory, a_resource_that_throws_for_want_of_it_is_an_error_like_any_other) {
  const auto resource = std::make_shared<OutOfHostMemory>();
  auto manager = GpuMemoryManager::create(Device::custom("poor", resource).value(), MemoryBudget::with_limit(100)).value();
  expect_refused(without_host_memory([&] { return manager.alloc<std::byte>(10); }), ErrorKind::driver, Layer::resource);
  EXPECT_EQ(manager.claimed_bytes(), 0U);

  resource->out_of_memory = false;
  auto buffer = manager.alloc<std::byte>(10).value();
  resource->out_of_memory = true;
  expect_refused(without_host_memory([&] { return buffer.release(); }), ErrorKind::driver, Layer::resource);
  EXPECT_EQ(manager.claimed_bytes(), 10U) << "a free that failed keeps its bytes";
  EXPECT_EQ(manager.deallocation_failure_count(), 1U);
  EXPECT_EQ(manager.deallocation_failure_bytes(), 10U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

// The address belongs to a part of the map that has no table yet, so that the door asks for memory; and so do its words.
TEST(WithoutHostMemory, a_door_keeps_no_block_that_it_cannot_hand_out) {
  auto scripted = scripted_manager();
  auto door = RawDoor::create(scripted.manager).value();
  const auto here = std::source_location::current();
  void* const warm = door.allocate(1000, 256, {}, {}, here).value();
  ASSERT_TRUE(door.deallocate(warm, 1000));
  scripted.resource->hand_out({std::uint64_t{0x700000000000}});
  expect_refused(without_host_memory([&] { return door.allocate(1000, 256, {}, {}, here); }), ErrorKind::io, Layer::manager);
  EXPECT_EQ(scripted.resource->allocations(), 2U);
  EXPECT_EQ(scripted.resource->frees(), 2U);
  EXPECT_EQ(scripted.manager.allocated_bytes(), 0U);
  EXPECT_EQ(door.live_blocks(), 0U);
  EXPECT_TRUE(scripted.manager.audit().clean()) << scripted.manager.audit().to_string();
}

}  // namespace
}  // namespace headroom::test
