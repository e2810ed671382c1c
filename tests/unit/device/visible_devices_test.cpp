// CUDA_VISIBLE_DEVICES in all its forms, as tables: what is known, what is hidden, what stays unknown.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/visible_devices.hpp>

#include "device/nvml_session.hpp"
#include "fake_nvml.hpp"

namespace headroom {
namespace {

using test::FakeNvml;

enum class Rest : std::uint8_t { none, unknown };  // whether there may be ordinals beyond those that are known

/// Positions of whole GPUs; an instance i of GPU g is 100 × g + 10 + i.
struct Row {
  std::optional<std::string> list;
  std::vector<int> expected;
  Rest rest = Rest::none;
};

[[nodiscard]] std::vector<GpuDevice> machine(unsigned count, std::function<void(FakeNvml&)> const& change = {}) {
  FakeNvml fake{test::equal_gpus(count)};
  if (change) change(fake);
  return device::nvml::read_devices(FakeNvml::table()).value();
}

void check(std::vector<GpuDevice> const& gpus, std::optional<std::string> const& order, std::vector<Row> const& rows) {
  for (auto const& row : rows) {
    const auto result = resolve_visible_devices({.visible_devices = row.list, .device_order = order}, gpus);
    std::vector<int> found;
    for (auto const& match : result.devices) {
      found.push_back(match.mig_instance ? static_cast<int>(100 * match.gpu + 10 + *match.mig_instance)
                                         : static_cast<int>(match.gpu));
    }
    const std::string what = row.list.value_or("(unset)") + " with order " + order.value_or("(unset)") + ": " + result.note;
    EXPECT_EQ(found, row.expected) << what;
    EXPECT_EQ(result.complete, row.rest == Rest::none) << what;
    EXPECT_TRUE(result.complete || !result.note.empty()) << what;
  }
}

TEST(VisibleDevices, indices_in_every_form) {
  const auto eight = machine(8);
  for (std::optional<std::string> const& order :
       std::vector<std::optional<std::string>>{std::nullopt, "FASTEST_FIRST", "PCI_BUS_ID"}) {
    check(eight, order,
          {
              {std::nullopt, {0, 1, 2, 3, 4, 5, 6, 7}},
              {"", {}},
              {"0", {0}},
              {"7,0,3", {7, 0, 3}},
              {"0,2,-1,1", {0, 2}},  // the guide's own example
              {"-1", {}},
              {"-1,0", {}},
              {"-2", {}},
              {"8", {}},
              {"0,8,1", {0}},
              {"2147483647,0", {}},
              {"1,1", {}},
              {"0,1,2,1", {}},
              {"0,-1,0", {0}},  // what is hidden is not named twice
              {"0,1,", {0, 1}},
              {",0", {}},
              {"0,,1", {0}},
              {",", {}},
              {" ", {}},
              {" 1", {1}},
              {"0, 1 ,\t2", {0, 1, 2}},
              {"NoDevFiles", {}},
              {"none", {}},
              {"0,x,1", {0}},
              {"-", {}},
              {"-x", {}},
              {"all", {}},
              {"1 1", {}, Rest::unknown},
              {"1x", {}, Rest::unknown},
              {"0,1gpu2", {}, Rest::unknown},  // were it a 0, there would be no device at all
              {"0:1", {}, Rest::unknown},
              {"1.0", {}, Rest::unknown},
              {"0x1", {}, Rest::unknown},
              {"007", {}, Rest::unknown},
              {"+1", {}, Rest::unknown},
              {"-0", {}, Rest::unknown},
              {"2147483648", {}, Rest::unknown},
              {"4294967296", {}, Rest::unknown},  // 2^32 may become 0
              {"99999999999999999999999", {}, Rest::unknown},
              {"1x,1,1", {}, Rest::none},  // named twice whatever 1x is
              {"-1,1x", {}},
          });
  }
}

TEST(VisibleDevices, uuids_whole_and_abbreviated) {
  const auto gpus = machine(3, [](FakeNvml& fake) {
    fake.gpus[0].uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
    fake.gpus[1].uuid = "GPU-8932aaaa-0000-0000-0000-000000000000";
    fake.gpus[2].uuid = "GPU-12345678-0000-0000-0000-000000000000";
    fake.gpus[1].name = "another card";  // the order of indices is unknown, that of UUIDs is theirs
  });
  check(gpus, std::nullopt,
        {
            {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", {0}},
            {"GPU-8932f937", {0}},
            {"GPU-8932f", {0}},
            {"GPU-8932", {}},  // two begin so
            {"GPU-1", {2}},
            {"GPU-12345678-0000,GPU-8932a", {2, 1}},
            {"GPU-1,GPU-8932,GPU-8932f", {2}},
            {"GPU-ffffffff", {}},
            {"GPU-1,GPU-ffffffff,GPU-8932f", {2}},
            {"GPU-1,GPU-12345678", {}},  // one card under two abbreviations
            {"GPU-1,GPU-1", {}},
            {"GPU-1,-1", {2}},
            {"GPU-1,", {2}},
            {"GPU-", {}, Rest::unknown},
            {"GPU-8932F937", {}, Rest::unknown},
            {"gpu-8932f937", {}, Rest::unknown},
            {" GPU-8932f937", {}, Rest::unknown},
            {"GPU-1,GPU-8932f937 ", {}, Rest::unknown},
            {" GPU-ffffffff", {}},
            {"gpu-zz", {}},
            {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6-and-more", {}},
            {"8932f937", {}, Rest::unknown},  // a number, whose end is no digit
            {"12345678", {}},                 // a number, and no UUID
        });
}

TEST(VisibleDevices, different_cards_have_no_known_order_unless_the_bus_decides) {
  // NVML's list is not in the order of the bus here: the bus has 2, 0, 1.
  const auto gpus = machine(3, [](FakeNvml& fake) {
    fake.gpus[0].bus_id = "00000000:20:00.0";
    fake.gpus[1].bus_id = "00000000:A0:00.0";
    fake.gpus[2].bus_id = "00000000:03:00.0";
    fake.gpus[2].name = "NVIDIA T4";
  });
  check(gpus, "PCI_BUS_ID", {{std::nullopt, {2, 0, 1}}, {"0", {2}}, {"2,1", {1, 0}}, {"3", {}}});
  for (std::optional<std::string> const& order :
       std::vector<std::optional<std::string>>{std::nullopt, "FASTEST_FIRST", "pci_bus_id", ""}) {
    check(gpus, order,
          {
              {std::nullopt, {}, Rest::unknown},
              {"0", {}, Rest::unknown},
              {"1,0", {}, Rest::unknown},
              {"3", {}},    // none, whatever the order
              {"1,1", {}},  // likewise
              {"-1", {}},
              {"", {}},
              {test::fake_uuid(1), {1}},
          });
  }
}

TEST(VisibleDevices, equal_cards_are_in_the_order_of_the_bus) {
  const auto gpus = machine(3, [](FakeNvml& fake) { std::swap(fake.gpus[0].bus_id, fake.gpus[2].bus_id); });
  check(gpus, std::nullopt, {{std::nullopt, {2, 1, 0}}, {"0", {2}}});
}

TEST(VisibleDevices, cards_are_equal_only_when_it_is_known) {
  const auto nameless = machine(2, [](FakeNvml& fake) { fake.gpus[0].name = fake.gpus[1].name = ""; });
  check(nameless, std::nullopt, {{"0", {}, Rest::unknown}});
  check(nameless, "PCI_BUS_ID", {{"0", {0}}});
  const auto larger = machine(2, [](FakeNvml& fake) { fake.gpus[1].memory.total = 81 * test::kGiB; });
  check(larger, std::nullopt, {{"0", {}, Rest::unknown}});
  const auto sizeless = machine(2, [](FakeNvml& fake) {
    for (auto& gpu : fake.gpus) gpu.memory.v2_code = gpu.memory.v1_code = device::nvml::kNotSupported;
  });
  check(sizeless, std::nullopt, {{"0", {}, Rest::unknown}});
  const auto placeless = machine(2, [](FakeNvml& fake) { fake.gpus[1].pci_code = device::nvml::kNoPermission; });
  check(placeless, std::nullopt, {{"0", {}, Rest::unknown}});
  check(placeless, "PCI_BUS_ID", {{"0", {}, Rest::unknown}, {test::fake_uuid(1), {1}}});
}

TEST(VisibleDevices, one_card_alone_has_the_index_0) {
  const auto gpus = machine(1, [](FakeNvml& fake) {
    fake.gpus[0].name = "";
    fake.gpus[0].pci_code = device::nvml::kNoPermission;
  });
  check(gpus, std::nullopt, {{std::nullopt, {0}}, {"0", {0}}, {"1", {}}, {"0,0", {}}});
}

TEST(VisibleDevices, a_card_that_cannot_be_read_makes_indices_and_abbreviations_doubtful) {
  const auto gpus = machine(3, [](FakeNvml& fake) { fake.gpus[1].handle_code = device::nvml::kNoPermission; });
  check(gpus, "PCI_BUS_ID",
        {
            {std::nullopt, {}, Rest::unknown},
            {"0", {}, Rest::unknown},
            {"GPU-00000002", {}, Rest::unknown},  // the unreadable one may begin so too
            {"GPU-ffff", {}, Rest::unknown},      // and may be this one
            {test::fake_uuid(2), {2}},
            {"3", {}},
            {"-1", {}},
        });
}

TEST(VisibleDevices, mixed_forms_are_known_as_far_as_nothing_can_undo_it) {
  const auto gpus = machine(4, [](FakeNvml& fake) { test::partition(fake.gpus[3], 3); });
  check(gpus, "PCI_BUS_ID",
        {
            {"0,GPU-00000001", {0}, Rest::unknown},
            {"0,2,GPU-00000001,1", {}, Rest::unknown},  // 1 and GPU-00000001 are one
            {"0,GPU-00000000", {}, Rest::unknown},      // named twice, if that form is accepted
            {"GPU-00000001,0", {1}, Rest::unknown},
            {"0,GPU-ffffffff", {0}},  // invalid in any case
            {"0,MIG-00000003-0001-5555-6666-777777777777", {}, Rest::unknown},
            {"MIG-00000003-0001-5555-6666-777777777777,0", {}, Rest::unknown},
            {"0,MIG-ffffffff", {0}},
        });
}

TEST(VisibleDevices, instances_by_uuid_and_by_place) {
  const auto gpus = machine(8, [](FakeNvml& fake) { test::partition(fake.gpus[7], 7); });
  const std::string first = "MIG-00000007-0001-5555-6666-777777777777", second = "MIG-00000007-0002-5555-6666-777777777777";
  const std::string parent = "MIG-" + test::fake_uuid(7);
  check(gpus, std::nullopt,
        {
            {first, {710}},
            {second, {711}},
            {second + "," + first, {711}, Rest::unknown},  // CUDA shows one
            {first + "," + first, {}, Rest::unknown},
            {second + ",MIG-ffffffff", {711}},
            {second + ",-1", {711}},
            {parent + "/1/0", {710}},
            {parent + "/2/0", {711}},
            {parent + "/2/1", {}},
            {parent + "/9/0", {}},
            {parent, {}},
            {parent + "/2", {}},
            {parent + "/2/", {}},
            {parent + "/x/0", {}},
            {"MIG-GPU-ffffffff-1111-2222-3333-444444444444/1/0", {}},
            {"MIG-GPU-00000007/1/0", {}, Rest::unknown},  // the guide abbreviates GPUs only
            {"MIG-" + test::fake_uuid(0) + "/1/0", {}},   // not partitioned
            {"MIG-00000007-0001", {}, Rest::unknown},
            {"mig-00000007-0001-5555-6666-777777777777", {}, Rest::unknown},
            {"MIG-", {}, Rest::unknown},
            {"MIG-ffffffff", {}},
        });
}

TEST(VisibleDevices, indices_before_the_first_partitioned_card_are_known) {
  const auto gpus = machine(8, [](FakeNvml& fake) { test::partition(fake.gpus[5], 5); });
  check(gpus, "PCI_BUS_ID",
        {
            {"4,0", {4, 0}},
            {"0,5", {}, Rest::unknown},  // an instance of 5 hides 0
            {"6", {}, Rest::unknown},
            {std::nullopt, {}, Rest::unknown},
            {test::fake_uuid(6), {6}},
            {test::fake_uuid(5), {}, Rest::unknown},  // one of its two instances
        });
}

TEST(VisibleDevices, a_partitioned_card_with_one_instance_means_that_one) {
  const auto one = [](FakeNvml& fake) {
    test::partition(fake.gpus[0], 0);
    fake.gpus[0].instances.pop_back();
  };
  check(machine(1, one), std::nullopt, {{std::nullopt, {10}}, {"0", {10}}, {"GPU-00000000", {10}}, {"1", {}}});
  check(machine(2, one), "PCI_BUS_ID",
        {{"GPU-00000000", {10}}, {"GPU-00000000,GPU-00000001", {}, Rest::unknown}, {"0", {}, Rest::unknown}});
  const auto none = [](FakeNvml& fake) { fake.gpus[0].mig = 1; };
  check(machine(1, none), std::nullopt, {{std::nullopt, {}, Rest::unknown}, {"0", {}, Rest::unknown}});
}

TEST(VisibleDevices, where_partitions_are_unknown_so_is_what_is_shown) {
  const auto gpus = machine(2, [](FakeNvml& fake) { fake.gpus[1].mig_code = device::nvml::kUnknown; });
  check(gpus, "PCI_BUS_ID",
        {
            {"0", {0}},
            {"1", {}, Rest::unknown},
            {test::fake_uuid(1), {}, Rest::unknown},
            {"MIG-ffffffff", {}, Rest::unknown},
            {"MIG-" + test::fake_uuid(1) + "/1/0", {}, Rest::unknown},
            {"MIG-" + test::fake_uuid(0) + "/1/0", {}},
        });
}

TEST(VisibleDevices, a_machine_without_gpus_shows_none) {
  check({}, std::nullopt, {{std::nullopt, {}}, {"0", {}}, {"GPU-1", {}}, {"", {}}});
}

TEST(VisibleDevices, answers_by_ordinal_by_device_and_for_what_is_hidden) {
  const auto gpus = machine(4);
  const auto result = resolve_visible_devices({.visible_devices = "3,1", .device_order = {}}, gpus);
  EXPECT_EQ(result.at(0), (GpuMatch{3, {}}));
  EXPECT_EQ(result.at(1), (GpuMatch{1, {}}));
  EXPECT_EQ(result.at(2), std::nullopt);
  EXPECT_EQ(result.at(-1), std::nullopt);
  EXPECT_EQ(result.ordinal_of({1, {}}), 1);
  EXPECT_EQ(result.ordinal_of({0, {}}), std::nullopt);
  EXPECT_TRUE(result.hides(0));
  EXPECT_FALSE(result.hides(3));
  const auto unknown = resolve_visible_devices({.visible_devices = "1x", .device_order = {}}, gpus);
  EXPECT_FALSE(unknown.hides(0)) << "it may be visible";
}

TEST(VisibleDevices, a_list_without_end_is_read_in_bounded_time) {
  std::string list = "0";
  for (int entry = 0; entry < 100'000; ++entry) list += ",0";
  check(machine(2), std::nullopt, {{list, {}}});
}

}  // namespace
}  // namespace headroom
