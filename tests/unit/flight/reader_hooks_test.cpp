// What a reader makes of the hook cells of a file, whole or hostile.
#include <gtest/gtest.h>

#include "flight_builder.hpp"

namespace headroom::flight {
namespace {

HookCell& put_hook(FlightBuilder& file, std::uint32_t cell, std::uint32_t id, std::uint32_t ledger, std::string_view name) {
  file.put_name(id, EntryKind::hook, ledger, cell, name);
  auto& hook = file.hook(cell);
  hook.directory_id = id;
  if (file.header().hooks_used <= cell) file.header().hooks_used = cell + 1;
  return hook;
}

TEST(FlightHooks, figures_are_each_in_their_place) {
  FlightBuilder file;
  auto& hook = put_hook(file, 3, 7, 2, "cache");
  file.name(7).payload = static_cast<std::uint64_t>(std::int64_t{-4});
  hook.runs = 11;
  hook.skips = 12;
  hook.errors = 13;
  hook.reported_bytes = 14;
  hook.freed_bytes = 15;
  hook.busy_skips = 16;
  hook.duration_ns = 17;
  hook.running_since_ticks = 18;
  hook.running_thread = 19;
  hook.limit_ns = 20;
  hook.overruns = 21;
  hook.estimated_bytes = 22;
  hook.duration_histogram[39] = 23;
  auto const hooks = file.view().hooks();
  ASSERT_EQ(hooks.size(), 1U);
  EXPECT_EQ(hooks[0].cell, 3U);
  EXPECT_EQ(hooks[0].directory_id, 7U);
  EXPECT_EQ(hooks[0].ledger_id, 2U);
  EXPECT_EQ(hooks[0].name, "cache");
  EXPECT_EQ(hooks[0].priority, -4);
  EXPECT_EQ(hooks[0].runs, 11U);
  EXPECT_EQ(hooks[0].skips, 12U);
  EXPECT_EQ(hooks[0].errors, 13U);
  EXPECT_EQ(hooks[0].reported_bytes, 14U);
  EXPECT_EQ(hooks[0].freed_bytes, 15U);
  EXPECT_EQ(hooks[0].busy_skips, 16U);
  EXPECT_EQ(hooks[0].duration_ns, 17U);
  EXPECT_EQ(hooks[0].running_since_ticks, 18U);
  EXPECT_EQ(hooks[0].running_thread, 19U);
  EXPECT_EQ(hooks[0].limit_ns, 20U);
  EXPECT_EQ(hooks[0].overruns, 21U);
  EXPECT_EQ(hooks[0].estimated_bytes, 22U);
  EXPECT_EQ(hooks[0].duration_histogram[39], 23U);
}

TEST(FlightHooks, one_that_does_not_run_has_no_begin_and_no_thread) {
  FlightBuilder file;
  put_hook(file, 0, 1, 0, "idle").running_thread = 99;  // of its last run
  auto const hooks = file.view().hooks();
  ASSERT_EQ(hooks.size(), 1U);
  EXPECT_EQ(hooks[0].running_since_ticks, std::nullopt);
  EXPECT_EQ(hooks[0].running_thread, 0U);
}

TEST(FlightHooks, cells_that_are_free_or_unnamed_are_left_out) {
  FlightBuilder file;
  put_hook(file, 0, 1, 0, "kept");
  file.hook(1).runs = 5;                               // free
  file.hook(2).directory_id = 2;                       // a name that is none
  file.hook(3).directory_id = std::uint64_t{1} << 40;  // no id
  file.put_name(4, EntryKind::tag, 0, 0, "a tag");
  file.hook(4).directory_id = 4;  // another kind
  put_hook(file, 5, 5, 0, "beyond");
  file.header().hooks_used = 5;
  auto const hooks = file.view().hooks();
  ASSERT_EQ(hooks.size(), 1U);
  EXPECT_EQ(hooks[0].name, "kept");
}

TEST(FlightHooks, one_that_ended_is_kept_for_the_sums_and_is_registered_no_more) {
  FlightBuilder file;
  put_hook(file, 0, 1, 2, "cache").runs = 5;
  put_hook(file, 1, 3, 2, "cache").runs = 7;
  file.hook(0).ended = 1;
  auto const registered = file.view().hooks();
  ASSERT_EQ(registered.size(), 1U);
  EXPECT_EQ(registered[0].runs, 7U);
  EXPECT_FALSE(registered[0].ended);
  auto const all = file.view().all_hooks();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].runs, 5U);
  EXPECT_TRUE(all[0].ended);
}

TEST(FlightHooks, a_hostile_count_of_cells_is_no_way_out_of_the_region) {
  FlightBuilder file;
  put_hook(file, 0, 1, 0, "only");
  file.header().hooks_used = ~std::uint64_t{0};
  EXPECT_EQ(file.view().hooks().size(), 1U);
}

}  // namespace
}  // namespace headroom::flight
