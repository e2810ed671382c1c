// Raw blocks, and buffers that change into bytes.
#include <cstdint>
#include <utility>

#include "fake_stack.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

TEST(RawBlock, without_a_runtime_is_refused_and_never_takes_another_way) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  EventWatch events;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{10}, SIZE_MAX}) {
    auto refused = host.manager.alloc_raw(bytes, AllocTag{"raw"});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::no_runtime);
    EXPECT_EQ(refused.error().layer, Layer::request);
    EXPECT_EQ(refused.error().requested, bytes);
  }
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
  EXPECT_EQ(host.manager.alloc_count(), 0U);
  EXPECT_EQ(host.manager.raw_alloc_count(), 3U);
  EXPECT_EQ(host.manager.claimed_bytes(), 0U);
  EXPECT_EQ(events.count(host.manager, flight::EventKind::refusal), 3U);
}

TEST(RawBlock, owns_its_bytes_until_it_is_released) {
  FakeRuntime fake{{.limit = 1000}, {.touch_memory = true}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto stream = fake.host->create_stream().value();
  auto block = manager.alloc_raw(300, AllocOptions{.tag = AllocTag{"scratch"}, .stream = stream, .alignment = 4096}).value();
  EXPECT_EQ(block.size_bytes(), 300U);
  EXPECT_EQ(block.stream(), stream);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 4096, 0U);
  ASSERT_EQ(block.host_span().size(), 300U);
  block.host_span()[299] = std::byte{7};
  EXPECT_EQ(manager.allocated_bytes(), 300U);
  EXPECT_EQ(tag_bytes(snapshot_of(manager), "scratch"), 300U);
  auto moved = std::move(block);
  EXPECT_EQ(block.data(), nullptr);  // NOLINT(bugprone-use-after-move): what a moved-from one says is the subject
  EXPECT_TRUE(block.release());
  EXPECT_EQ(manager.allocated_bytes(), 300U);
  moved = manager.alloc_raw(100, AllocTag{}).value();
  EXPECT_EQ(manager.allocated_bytes(), 100U) << "the old one was given back";
  ASSERT_TRUE(moved.release());
  ASSERT_TRUE(moved.release()) << "empty by now";
  EXPECT_EQ(manager.allocated_bytes(), 0U);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
}

TEST(RawBlock, of_zero_bytes_succeeds_and_reaches_no_stack) {
  FakeRuntime fake{{.limit = 0}};
  auto manager = fake.manager(MemoryBudget::with_limit(0));
  auto block = manager.alloc_raw(0, AllocTag{}).value();
  EXPECT_EQ(block.data(), nullptr);
  EXPECT_EQ(fake.stack->figures().allocates, 0);
  EXPECT_EQ(manager.raw_alloc_count(), 1U);
}

TEST(RawBlock, counts_failed_requests_too) {
  FakeRuntime fake{{.limit = 1000}};
  auto manager = fake.manager(MemoryBudget::with_limit(100));
  EXPECT_EQ(manager.alloc_raw(101, AllocTag{}).error().kind, ErrorKind::over_budget);
  EXPECT_EQ(manager.alloc_raw(SIZE_MAX, AllocTag{}).error().kind, ErrorKind::overflow);
  EXPECT_EQ(manager.alloc_raw(8, AllocOptions{.alignment = 12}).error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(manager.alloc_raw(8, AllocOptions{.stream = {99}}).error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(manager.raw_alloc_count(), 4U);
  EXPECT_EQ(manager.alloc_count(), 0U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
}

TEST(IntoBytes, changes_the_type_and_nothing_else) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  auto numbers = host.manager.alloc<std::uint64_t>(100, AllocTag{"numbers"}).value();
  void* const address = numbers.data();
  EventWatch events;
  TrackedBuffer<std::byte> bytes = into_bytes(std::move(numbers));
  EXPECT_EQ(bytes.size(), 800U);
  EXPECT_EQ(bytes.size_bytes(), 800U);
  EXPECT_EQ(bytes.data(), address);
  EXPECT_EQ(numbers.size(), 0U);  // NOLINT(bugprone-use-after-move): what a moved-from one says is the subject
  EXPECT_EQ(host.manager.allocated_bytes(), 800U);
  EXPECT_EQ(host.manager.stats().allocations, 1U);
  EXPECT_EQ(events.count(host.manager, flight::EventKind::allocate), 0U);
  EXPECT_EQ(events.count(host.manager, flight::EventKind::free), 0U);
  ASSERT_TRUE(bytes.release());
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(into_bytes(TrackedBuffer<double>{}).size(), 0U);
  auto small = into_bytes(into_bytes(host.manager.alloc<std::byte>(3).value()));
  EXPECT_EQ(small.size(), 3U);
}

// The largest buffer that can be: its size in bytes is what the books hold, so nothing can wrap.
TEST(IntoBytes, of_the_largest_buffer_there_can_be) {
  auto manager = null_manager(MemoryBudget::unlimited());
  struct alignas(8) Wide {
    std::uint64_t words[1024];
  };
  const std::size_t count = flight::kBytesMask / sizeof(Wide);
  auto bytes = into_bytes(manager.alloc<Wide>(count).value());
  EXPECT_EQ(bytes.size(), count * sizeof(Wide));
  EXPECT_EQ(manager.allocated_bytes(), count * sizeof(Wide));
}

}  // namespace
}  // namespace headroom::test
