// The raw door, used rightly: memory by pointer, whose books are whose, what can be asked, failures of the device below.
#include <bit>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "doors.hpp"
#include "flight/recorder.hpp"
#include "host_memory.hpp"
#include "manager/door_core.hpp"
#include "scripted_resource.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kAlign = kMinimumAlignment;

TEST(RawDoor, hands_memory_out_and_takes_it_back_by_pointer) {
  auto host = host_manager(MemoryBudget::with_limit(10'000));
  const auto door = door_on(host.manager);
  RawDoor copy = door;
  void* const pointer = copy.allocate(1000, kAlign, {}, AllocTag{"raw"}).value();
  ASSERT_NE(pointer, nullptr);
  EXPECT_EQ(host.manager.allocated_bytes(), 1000U);
  EXPECT_EQ(tag_bytes(snapshot_of(host.manager), "raw"), 1000U);
  EXPECT_EQ(door.live_blocks(), 1U);
  EXPECT_EQ(host.resource->usage().live_blocks, 1U);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
  ASSERT_TRUE(copy.deallocate(pointer, 1000));
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(host.manager.claimed_bytes(), 0U);
  EXPECT_EQ(door.live_blocks(), 0U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
  EXPECT_EQ(host.manager.alloc_count(), 0U);  // typed requests only
  EXPECT_EQ(snapshot_of(host.manager).counters.raw_requests, 1U);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
}

TEST(RawDoor, needs_no_size_and_honours_the_alignment) {
  auto host = host_manager(MemoryBudget::unlimited());
  auto door = door_on(host.manager);
  std::vector<void*> blocks{door.allocate(10, kAlign, {}).value()};  // a device's first address would suit any alignment
  for (std::uint64_t alignment = kAlign; alignment <= 1 << 20; alignment *= 2) {
    blocks.push_back(door.allocate(10, alignment, {}).value());
    EXPECT_EQ(std::bit_cast<std::uint64_t>(blocks.back()) % alignment, 0U) << alignment;
  }
  for (void* const pointer : blocks) EXPECT_TRUE(door.deallocate(pointer, kUnknownBytes));
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
}

TEST(RawDoor, zero_bytes_are_null_and_can_be_freed_as_often_as_liked) {
  auto manager = null_manager(MemoryBudget::with_limit(0));
  auto door = door_on(manager);
  const auto before = books_of(door);
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(door.allocate(0, kAlign, {}).value());
  for (void* block : blocks) {
    EXPECT_EQ(block, nullptr);
    EXPECT_TRUE(door.deallocate(block, 0));
    EXPECT_TRUE(door.deallocate(block, 0));
  }
  EXPECT_TRUE(door.deallocate(nullptr, kUnknownBytes));
  EXPECT_TRUE(door.deallocate(nullptr, 17));  // free(nullptr), whatever is said of it
  EXPECT_TRUE(door.deallocate(door.allocate_block(0, kAlign, {}).value()));
  EXPECT_EQ(books_of(door), before);
  EXPECT_EQ(door.misuse_count(), 0U);
  EXPECT_FALSE(door.find(nullptr));
}

TEST(RawDoor, refuses_sizes_that_cannot_be_before_anything_is_touched) {
  auto resource = std::make_shared<ScriptedResource>();
  auto manager =
      GpuMemoryManager::create(Device::custom("scripted", resource).value(), MemoryBudget::with_limit(1 << 30)).value();
  auto door = door_on(manager);
  const auto before = books_of(door);
  constexpr std::uint64_t k16TiB = std::uint64_t{1} << 44;
  for (const std::uint64_t bytes : {UINT64_MAX, UINT64_MAX - 510, UINT64_MAX / 2 + 1, std::uint64_t{1} << 61, k16TiB}) {
    const auto refused = door.allocate(bytes, kAlign, {});
    ASSERT_FALSE(refused) << bytes;
    EXPECT_EQ(refused.error().kind, ErrorKind::overflow) << bytes;
    EXPECT_EQ(refused.error().requested, bytes);
  }
  const auto large = door.allocate(k16TiB - 1, kAlign, {});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().kind, ErrorKind::over_budget);
  const auto odd = door.allocate(10, 300, {});
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(books_of(door), before);
  EXPECT_EQ(resource->allocations(), 0U);
}

TEST(RawDoor, stays_inside_the_budget_that_it_shares_with_buffers) {
  auto host = host_manager(MemoryBudget::with_limit(1000));
  auto door = door_on(host.manager);
  auto buffer = host.manager.alloc<std::byte>(400).value();
  void* const pointer = door.allocate(600, kAlign, {}).value();
  EXPECT_EQ(door.allocate(1, kAlign, {}).error().kind, ErrorKind::over_budget);
  ASSERT_TRUE(door.deallocate(pointer, 600));
  EXPECT_TRUE(host.manager.alloc<std::byte>(600));
  EXPECT_EQ(host.manager.peak_bytes(), 1000U);
}

TEST(RawDoor, a_free_on_another_thread_credits_where_the_block_came_from) {
  auto host = host_manager(MemoryBudget::unlimited());
  auto door = door_on(host.manager);
  const AllocTag tag{"raw-elsewhere"};
  std::vector<void*> blocks;
  for (std::uint64_t i = 1; i <= 10; ++i) blocks.push_back(door.allocate(100 * i, kAlign, {}, tag).value());
  std::thread{[&] {
    const TagScope scope{AllocTag{"raw-other-scope"}};
    for (std::uint64_t i = 1; i <= 5; ++i) EXPECT_TRUE(door.deallocate(blocks[i - 1], 100 * i));
  }}.join();
  EXPECT_EQ(tag_bytes(snapshot_of(host.manager), "raw-elsewhere"), 4000U);  // 600 + 700 + 800 + 900 + 1000
  EXPECT_EQ(tag_bytes(snapshot_of(host.manager), "raw-other-scope"), 0U);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
  for (std::uint64_t i = 6; i <= 10; ++i) EXPECT_TRUE(door.deallocate(blocks[i - 1], kUnknownBytes));
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
}

TEST(RawDoor, frees_on_the_stream_that_it_is_told_else_on_the_blocks_own) {
  auto host = host_manager(MemoryBudget::unlimited(), {.total_bytes = 1 << 20, .touch_memory = false, .stream_ordered = true});
  auto door = door_on(host.manager);
  const StreamId own = host.resource->create_stream().value();
  const StreamId other = host.resource->create_stream().value();
  void* const first = door.allocate(1000, kAlign, own).value();
  void* const second = door.allocate(1000, kAlign, own).value();
  ASSERT_TRUE(host.resource->enqueue_work(own, std::chrono::milliseconds{5}));
  ASSERT_TRUE(host.resource->enqueue_work(other, std::chrono::milliseconds{50}));
  ASSERT_TRUE(door.deallocate(first, 1000, other));
  ASSERT_TRUE(door.deallocate(second, 1000));
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  host.resource->advance(std::chrono::milliseconds{10});  // past the work of the block's own stream only
  EXPECT_EQ(host.resource->reap_pending(ReapMode::query), 1000U);
  host.resource->advance(std::chrono::milliseconds{50});
  EXPECT_EQ(host.resource->reap_pending(ReapMode::query), 1000U);
}

TEST(RawDoor, a_free_on_a_stream_that_is_none_fails_and_can_be_repeated_on_one_that_is) {
  auto host = host_manager(MemoryBudget::unlimited());
  auto door = door_on(host.manager);
  void* const first = door.allocate(1000, kAlign, {}).value();
  void* const second = door.allocate(500, kAlign, {}).value();
  for (void* pointer : {first, second}) {
    const auto freed = door.deallocate(pointer, kUnknownBytes, StreamId{77});
    ASSERT_FALSE(freed);
    EXPECT_EQ(freed.error().kind, ErrorKind::stream_misuse);
  }
  EXPECT_EQ(host.manager.allocated_bytes(), 1500U);
  EXPECT_EQ(door.live_blocks(), 2U);
  EXPECT_EQ(door.misuse_count(), 0U);  // it was the device that said no
  EXPECT_TRUE(door.deallocate(first, 1000));
  // The manager's retry uses the block's own stream too.
  EXPECT_EQ(host.manager.retry_failed_deallocations(), 1U);
  EXPECT_EQ(host.manager.allocated_bytes(), 0U);
  EXPECT_EQ(host.manager.deallocation_failure_bytes(), 0U);
  EXPECT_EQ(door.live_blocks(), 0U);
}

TEST(RawDoor, a_failed_free_puts_the_pointer_back_and_a_second_one_works) {
  auto scripted = scripted_manager();
  auto door = door_on(scripted.manager);
  const RawBlock block = door.allocate_block(1000, kAlign, {}).value();
  scripted.resource->refuse_frees(2);
  for (std::uint64_t failures = 1; failures <= 2; ++failures) {
    const auto freed = door.deallocate(block);
    ASSERT_FALSE(freed);
    EXPECT_EQ(freed.error().kind, ErrorKind::driver);
    EXPECT_EQ(scripted.manager.allocated_bytes(), 1000U);
    EXPECT_EQ(scripted.manager.deallocation_failure_bytes(), 1000U);  // once, however often
    EXPECT_EQ(scripted.manager.deallocation_failure_count(), failures);
    EXPECT_EQ(door.live_blocks(), 1U);
    const auto found = door.find(block.pointer);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->free_failed);
    EXPECT_EQ(found->generation, block.generation);
    EXPECT_TRUE(scripted.manager.audit().clean()) << scripted.manager.audit().to_string();
  }
  EXPECT_TRUE(door.deallocate(block));
  EXPECT_EQ(scripted.resource->frees(), 3U);
  EXPECT_EQ(scripted.manager.allocated_bytes(), 0U);
  EXPECT_EQ(scripted.manager.deallocation_failure_bytes(), 0U);
  EXPECT_EQ(door.live_blocks(), 0U);
  EXPECT_EQ(scripted.manager.retry_failed_deallocations(), 0U);
  EXPECT_TRUE(scripted.manager.audit().clean()) << scripted.manager.audit().to_string();
}

TEST(RawDoor, a_block_that_keeps_failing_stands_in_quarantine_once) {
  auto scripted = scripted_manager();
  auto door = door_on(scripted.manager);
  void* const pointer = door.allocate(1000, kAlign, {}).value();
  scripted.resource->refuse_frees(101);
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(door.deallocate(pointer, 1000));
  EXPECT_EQ(scripted.manager.retry_failed_deallocations(), 0U);  // asks once: a second entry would be asked for too, and succeed
  EXPECT_EQ(scripted.resource->frees(), 101U);
  EXPECT_EQ(scripted.manager.retry_failed_deallocations(), 1U);
  EXPECT_EQ(scripted.resource->frees(), 102U);
  EXPECT_EQ(scripted.manager.allocated_bytes(), 0U);
  EXPECT_EQ(scripted.manager.retry_failed_deallocations(), 0U);
}

TEST(RawDoor, what_the_manager_settled_is_gone_from_the_door) {
  auto scripted = scripted_manager();
  auto door = door_on(scripted.manager);
  scripted.resource->hand_out({0x500000, 0x600000, 0x500000});
  void* const retried = door.allocate(1000, kAlign, {}).value();
  void* const written_off = door.allocate(500, kAlign, {}).value();
  scripted.resource->refuse_frees(1);
  ASSERT_FALSE(door.deallocate(retried, 1000));
  EXPECT_EQ(scripted.manager.retry_failed_deallocations(), 1U);
  EXPECT_FALSE(door.find(retried));
  // The resource may give the address out again; that is no double.
  EXPECT_EQ(door.allocate(70, kAlign, {}), retried);
  EXPECT_EQ(door.addresses_twice(), 0U);
  EXPECT_EQ(door.live_blocks(), 2U);

  scripted.resource->refuse_frees(1);
  ASSERT_FALSE(door.deallocate(written_off, 500));
  EXPECT_EQ(scripted.manager.write_off_failed_deallocations(), 500U);
  const std::uint64_t asked = scripted.resource->frees();
  const auto again = door.deallocate(written_off, 500);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::double_free);
  EXPECT_NE(again.error().message.find("write-off"), std::string::npos) << again.error().message;
  EXPECT_EQ(scripted.resource->frees(), asked);
  EXPECT_EQ(door.live_blocks(), 1U);
  EXPECT_TRUE(door.deallocate(retried, 70));
  EXPECT_EQ(scripted.manager.allocated_bytes(), 0U);
  EXPECT_TRUE(scripted.manager.audit().clean()) << scripted.manager.audit().to_string();
}

TEST(RawDoor, without_a_slot_in_the_live_table_failed_frees_can_be_repeated_too) {
  auto scripted = scripted_manager();
  auto door = door_on(scripted.manager);
  const std::uint32_t slots = flight::recorder.geometry[flight::Region::live_slots].count;
  std::vector<void*> held;
  for (std::uint32_t i = 0; i < slots; ++i) held.push_back(door.allocate(10, kAlign, {}).value());
  void* const untracked = door.allocate(1000, kAlign, {}, AllocTag{"raw-untracked"}).value();
  ASSERT_GE(snapshot_of(scripted.manager).live_untracked, 1U);
  EXPECT_GT(door.find(untracked)->age.count(), 0);
  scripted.resource->refuse_frees(2);
  ASSERT_FALSE(door.deallocate(untracked, 1000));
  ASSERT_FALSE(door.deallocate(untracked, 1000));
  EXPECT_EQ(scripted.manager.deallocation_failure_bytes(), 1000U);
  EXPECT_TRUE(door.deallocate(untracked, 1000));
  EXPECT_EQ(scripted.manager.deallocation_failure_bytes(), 0U);
  for (void* pointer : held) ASSERT_TRUE(door.deallocate(pointer, 10));
  EXPECT_EQ(scripted.manager.allocated_bytes(), 0U);
  EXPECT_TRUE(scripted.manager.audit().clean()) << scripted.manager.audit().to_string();
}

TEST(RawDoor, without_host_memory_the_block_goes_back_and_nothing_is_lost) {
  auto scripted = scripted_manager();
  auto door = door_on(scripted.manager);
  {
    const NoHostMemory none;
    const auto refused = door.allocate(1000, kAlign, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::io);
    EXPECT_EQ(refused.error().requested, 1000U);
  }
  EXPECT_EQ(scripted.resource->allocations(), 1U);
  EXPECT_EQ(scripted.resource->frees(), 1U);
  EXPECT_EQ(scripted.manager.allocated_bytes(), 0U);
  EXPECT_EQ(door.live_blocks(), 0U);
  EXPECT_TRUE(scripted.manager.audit().clean()) << scripted.manager.audit().to_string();
}

TEST(RawDoor, a_null_pointer_for_real_bytes_is_the_resources_failure) {
  auto scripted = scripted_manager();
  auto door = door_on(scripted.manager);
  scripted.resource->hand_out({0});
  const auto refused = door.allocate(1000, kAlign, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_NE(refused.error().message.find("null pointer for 1000 bytes"), std::string::npos) << refused.error().message;
  EXPECT_EQ(scripted.manager.allocated_bytes(), 0U);
  EXPECT_EQ(door.live_blocks(), 0U);
}

TEST(RawDoor, an_address_given_out_twice_is_counted_and_both_blocks_can_be_freed) {
  auto scripted = scripted_manager();
  auto door = door_on(scripted.manager);
  scripted.resource->hand_out({0x700000, 0x700000, 0x700000});
  void* const pointer = door.allocate(100, kAlign, {}).value();
  EXPECT_EQ(door.allocate(200, kAlign, {}), pointer);
  EXPECT_EQ(door.allocate(300, kAlign, {}), pointer);
  EXPECT_EQ(door.addresses_twice(), 2U);
  EXPECT_EQ(door.misuse_count(), 0U);
  EXPECT_EQ(door.live_blocks(), 3U);
  EXPECT_EQ(scripted.manager.allocated_bytes(), 600U);
  EXPECT_EQ(door.find(pointer)->bytes, 300U);
  EXPECT_TRUE(door.deallocate(pointer, 100));
  EXPECT_EQ(scripted.manager.allocated_bytes(), 500U);
  EXPECT_TRUE(door.deallocate(pointer, kUnknownBytes));  // the newest
  EXPECT_EQ(scripted.manager.allocated_bytes(), 200U);
  EXPECT_EQ(door.deallocate(pointer, 300).error().kind, ErrorKind::wrong_size);
  EXPECT_TRUE(door.deallocate(pointer, 200));
  EXPECT_EQ(door.deallocate(pointer, 200).error().kind, ErrorKind::double_free);
  EXPECT_EQ(scripted.manager.allocated_bytes(), 0U);
  EXPECT_TRUE(scripted.manager.audit().clean()) << scripted.manager.audit().to_string();
}

TEST(RawDoor, overlapping_blocks_are_found_when_asked_for) {
  auto scripted = scripted_manager();
  auto door = door_on(scripted.manager);
  scripted.resource->hand_out({0x10000, 0x20000, 0x20800, 0x20c00, 0x21000, 0x30000});
  for (const std::uint64_t bytes : {0x1000U, 0x1000U, 0x100U, 0x100U, 0x100U, 0x100U}) {
    ASSERT_TRUE(door.allocate(bytes, kAlign, {}));
  }
  const auto overlaps = door.overlaps();
  ASSERT_EQ(overlaps.size(), 2U);  // 0x21000 begins where 0x20000 ends
  const auto address = [](RawBlock const& block) { return std::bit_cast<std::uint64_t>(block.pointer); };
  EXPECT_EQ(address(overlaps[0].first), 0x20000U);
  EXPECT_EQ(address(overlaps[0].second), 0x20800U);
  EXPECT_EQ(address(overlaps[1].first), 0x20000U);
  EXPECT_EQ(address(overlaps[1].second), 0x20c00U);
}

TEST(RawDoor, finds_blocks_by_any_address_inside_them) {
  auto host = host_manager(MemoryBudget::unlimited());
  auto door = door_on(host.manager);
  const RawBlock block = door.allocate_block(1000, kAlign, {}, AllocTag{"raw-found"}).value();
  const auto first = door.find(block.pointer);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->base, block.pointer);
  EXPECT_EQ(first->bytes, 1000U);
  EXPECT_EQ(first->offset, 0U);
  EXPECT_EQ(first->generation, block.generation);
  EXPECT_EQ(first->tag, "raw-found");
  EXPECT_NE(first->site.find("raw_door_test.cpp"), std::string::npos) << first->site;
  EXPECT_EQ(first->thread, static_cast<std::uint32_t>(gettid()));
  EXPECT_GE(first->age.count(), 0);
  EXPECT_FALSE(first->free_failed);
  const auto last = door.find(offset_by(block.pointer, 999));
  ASSERT_TRUE(last);
  EXPECT_EQ(last->base, block.pointer);
  EXPECT_EQ(last->offset, 999U);
  EXPECT_FALSE(door.find(offset_by(block.pointer, 1000)));
  ASSERT_TRUE(door.deallocate(block));
  EXPECT_FALSE(door.find(block.pointer));
}

TEST(RawDoor, ages_grow) {
  auto host = host_manager(MemoryBudget::unlimited());
  auto door = door_on(host.manager);
  const RawBlock block = door.allocate_block(1000, kAlign, {}).value();
  std::this_thread::sleep_for(std::chrono::milliseconds{4});  // by another clock than the block's
  EXPECT_GE(door.find(block.pointer)->age, std::chrono::milliseconds{2});
  EXPECT_TRUE(door.deallocate(block));
}

TEST(RawDoor, blocks_outlive_their_door_charged_and_findable) {
  auto host = host_manager(MemoryBudget::unlimited(), {.touch_memory = false}, "raw-orphans");
  void* pointer = nullptr;
  {
    auto door = door_on(host.manager);
    pointer = door.allocate(1000, kAlign, {}, AllocTag{"raw-orphan"}).value();
  }
  EXPECT_EQ(host.manager.allocated_bytes(), 1000U);
  EXPECT_TRUE(host.manager.audit().clean()) << host.manager.audit().to_string();
  const auto found = find_raw_block(offset_by(pointer, 5));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->base, pointer);
  EXPECT_EQ(found->tag, "raw-orphan");
  auto other = door_on(host.manager);
  EXPECT_FALSE(other.find(pointer));
  const auto freed = other.deallocate(pointer, 1000);
  ASSERT_FALSE(freed);
  EXPECT_EQ(freed.error().kind, ErrorKind::wrong_owner);
  EXPECT_EQ(host.manager.allocated_bytes(), 1000U);
}

TEST(RawDoor, doors_that_come_and_go_leave_nothing_behind) {
  auto manager = null_manager(MemoryBudget::unlimited());
  void* pointer = nullptr;
  for (int i = 0; i < 100; ++i) {
    auto door = door_on(manager);
    if (i > 0) {
      // Another life of the same door: what the last one freed is not its own.
      const auto freed = door.deallocate(pointer, 10);
      ASSERT_FALSE(freed);
      ASSERT_EQ(freed.error().kind, ErrorKind::unknown_pointer);
      ASSERT_EQ(door.misuse_count(), 1U);
    }
    pointer = door.allocate(10, kAlign, {}).value();
    ASSERT_TRUE(door.deallocate(pointer, 10));
  }
  const std::size_t before = manager::DoorCore::all().size();
  for (int i = 0; i < 100; ++i) static_cast<void>(door_on(manager));
  EXPECT_EQ(manager::DoorCore::all().size(), before);
}

TEST(RawDoor, a_door_keeps_its_manager_open) {
  std::optional<RawDoor> door;
  {
    auto manager = null_manager(MemoryBudget::with_limit(100), "raw-kept");
    door = door_on(manager);
  }
  EXPECT_EQ(door->manager().name(), "raw-kept");
  void* const pointer = door->allocate(100, kAlign, {}).value();
  EXPECT_EQ(door->manager().allocated_bytes(), 100U);
  EXPECT_TRUE(door->deallocate(pointer, 100));
}

TEST(RawDoor, a_forked_child_is_refused_and_harms_nobody) {
  auto host = host_manager(MemoryBudget::unlimited());
  auto door = std::make_unique<RawDoor>(door_on(host.manager));
  void* const pointer = door->allocate(1000, kAlign, {}).value();
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = door->allocate(10, kAlign, {}).error().kind == ErrorKind::unsupported &&
                         door->deallocate(pointer, 1000).error().kind == ErrorKind::unsupported &&
                         RawDoor::create(host.manager).error().kind == ErrorKind::unsupported && !door->find(pointer) &&
                         door->live_blocks() == 1 && door->overlaps().empty() && misuse_reports().empty();
    door.reset();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(host.manager.allocated_bytes(), 1000U);
  EXPECT_TRUE(door->deallocate(pointer, 1000));
}

}  // namespace
}  // namespace headroom::test
