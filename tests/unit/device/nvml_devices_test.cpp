// Reading GPUs through a table of functions: every figure, and every way in which one can be missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "device/nvml_session.hpp"
#include "fake_nvml.hpp"

namespace headroom::device::nvml {
namespace {

using test::equal_gpus;
using test::FakeGpu;
using test::FakeNvml;
using test::kGiB;
using test::kMiB;
using testing::HasSubstr;

[[nodiscard]] std::vector<GpuDevice> read(Table const& table = FakeNvml::table()) { return read_devices(table).value(); }

TEST(NvmlDevices, have_identity_and_four_separate_figures) {
  const FakeNvml fake{equal_gpus(8)};
  const auto devices = read();
  ASSERT_EQ(devices.size(), 8U);
  auto const& third = devices[3];
  EXPECT_EQ(third.index, 3U);
  EXPECT_EQ(third.uuid, "GPU-00000003-1111-2222-3333-444444444444");
  EXPECT_EQ(third.pci_address, "0000:38:00.0");
  EXPECT_EQ(third.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(third.memory.physical_total, 85'899'345'920U);  // 80 GiB
  EXPECT_EQ(third.memory.driver_reserved, 629'145'600U);    // 600 MiB
  EXPECT_EQ(third.memory.usable, 85'270'200'320U);          // the difference
  EXPECT_EQ(third.memory.free, 75'161'927'680U);            // 70 GiB
  EXPECT_EQ(third.mig, MigMode::disabled);
  EXPECT_TRUE(third.mig_instances.empty());
  EXPECT_TRUE(third.mig_instances_complete);
  EXPECT_EQ(third.problem, "");
}

TEST(NvmlDevices, an_older_driver_knows_no_reserve) {
  const FakeNvml fake{equal_gpus(1)};
  auto table = FakeNvml::table();
  table.memory_v2 = nullptr;
  const auto memory = read(table).at(0).memory;
  EXPECT_EQ(memory.physical_total, 80 * kGiB);
  EXPECT_EQ(memory.free, 70 * kGiB);
  EXPECT_EQ(memory.driver_reserved, std::nullopt) << "unknown is absent, not zero";
  EXPECT_EQ(memory.usable, std::nullopt);
}

TEST(NvmlDevices, falls_back_to_the_older_call_where_the_newer_one_is_not_understood) {
  FakeNvml fake{equal_gpus(1)};
  for (const Code code : {kFunctionNotFound, kArgumentVersionMismatch, kNotSupported, kInvalidArgument}) {
    fake.gpus[0].memory.v2_code = code;
    const auto device = read().at(0);
    EXPECT_EQ(device.memory.physical_total, 80 * kGiB) << code;
    EXPECT_EQ(device.memory.driver_reserved, std::nullopt) << code;
    EXPECT_EQ(device.problem, "") << code;
  }
}

TEST(NvmlDevices, a_failure_of_the_newer_call_is_no_reason_to_ask_the_older_one) {
  FakeNvml fake{equal_gpus(2)};
  fake.gpus[0].memory.v2_code = kGpuIsLost;
  const auto devices = read();
  EXPECT_EQ(devices.at(0).memory.physical_total, std::nullopt);
  EXPECT_EQ(devices.at(0).problem, "memory: the GPU has fallen off the bus (NVML code 15)");
  EXPECT_EQ(devices.at(0).uuid, test::fake_uuid(0)) << "what can be read is";
  EXPECT_EQ(devices.at(1).memory.physical_total, 80 * kGiB) << "and the other GPU is whole";
  EXPECT_EQ(devices.at(1).problem, "");
}

TEST(NvmlDevices, memory_that_is_the_hosts_has_no_figures_and_no_problem) {
  FakeNvml fake{equal_gpus(1)};
  fake.gpus[0].memory.v2_code = fake.gpus[0].memory.v1_code = kNotSupported;
  const auto device = read().at(0);
  EXPECT_EQ(device.memory.physical_total, std::nullopt);
  EXPECT_EQ(device.memory.free, std::nullopt);
  EXPECT_EQ(device.problem, "");
}

TEST(NvmlDevices, figures_that_cannot_be_are_unknown) {
  FakeNvml fake{equal_gpus(2)};
  fake.gpus[0].memory.reserved = 80 * kGiB + 1;
  fake.gpus[1].memory.free = 80 * kGiB + 1;
  const auto devices = read();
  EXPECT_EQ(devices.at(0).memory.driver_reserved, std::nullopt);
  EXPECT_EQ(devices.at(0).memory.usable, std::nullopt);
  EXPECT_EQ(devices.at(0).memory.physical_total, 80 * kGiB);
  EXPECT_EQ(devices.at(1).memory.free, std::nullopt);
  EXPECT_EQ(devices.at(1).memory.usable, 80 * kGiB - 600 * kMiB);
}

TEST(NvmlDevices, partitions_have_uuid_place_and_memory_of_their_own) {
  FakeNvml fake{equal_gpus(8)};
  test::partition(fake.gpus[7], 7);
  const auto devices = read();
  EXPECT_EQ(devices.at(6).mig, MigMode::disabled);
  auto const& parted = devices.at(7);
  EXPECT_EQ(parted.mig, MigMode::enabled);
  EXPECT_TRUE(parted.mig_instances_complete) << "places without an instance are nothing unknown";
  ASSERT_EQ(parted.mig_instances.size(), 2U);
  auto const& second = parted.mig_instances[1];
  EXPECT_EQ(second.uuid, "MIG-00000007-0002-5555-6666-777777777777");
  EXPECT_EQ(second.gpu_instance, 2U);
  EXPECT_EQ(second.compute_instance, 0U);
  EXPECT_EQ(second.memory.physical_total, 20 * kGiB);
  EXPECT_EQ(second.memory.usable, 20 * kGiB - 100 * kMiB);
  EXPECT_EQ(second.memory.free, 10 * kGiB);
}

TEST(NvmlDevices, a_driver_without_partitions_has_none) {
  FakeNvml fake{equal_gpus(1)};
  auto table = FakeNvml::table();
  table.mig_mode = nullptr;
  EXPECT_EQ(read(table).at(0).mig, MigMode::unsupported);
  fake.gpus[0].mig_code = kNotSupported;
  EXPECT_EQ(read().at(0).mig, MigMode::unsupported);
  fake.gpus[0].mig_code = kUnknown;
  const auto device = read().at(0);
  EXPECT_EQ(device.mig, MigMode::unknown);
  EXPECT_FALSE(device.mig_instances_complete);
  EXPECT_EQ(device.problem, "MIG mode: NVML failed (NVML code 999)");
}

TEST(NvmlDevices, instances_that_cannot_be_read_are_known_to_be_missing) {
  FakeNvml fake{equal_gpus(1)};
  test::partition(fake.gpus[0], 0);
  auto table = FakeNvml::table();
  table.mig_handle = nullptr;
  const auto device = read(table).at(0);
  EXPECT_TRUE(device.mig_instances.empty());
  EXPECT_FALSE(device.mig_instances_complete);
  EXPECT_EQ(device.problem, "MIG instances: the driver's library lacks a function (NVML code 13)");
  fake.gpus[0].instances[1].uuid.assign(200, 'x');  // more than NVML may write
  const auto nameless = read().at(0);
  EXPECT_EQ(nameless.mig_instances.at(1).uuid, "");
  EXPECT_FALSE(nameless.mig_instances_complete);
}

TEST(NvmlDevices, one_that_may_not_be_touched_keeps_its_place) {
  FakeNvml fake{equal_gpus(3)};
  fake.gpus[1].handle_code = kNoPermission;
  const auto devices = read();
  ASSERT_EQ(devices.size(), 3U);
  EXPECT_EQ(devices[1].uuid, "");
  EXPECT_EQ(devices[1].problem, "device: no permission (NVML code 4)");
  EXPECT_EQ(devices[2].index, 2U);
  EXPECT_EQ(devices[2].uuid, test::fake_uuid(2));
}

TEST(NvmlDevices, what_is_optional_may_be_missing_altogether) {
  const FakeNvml fake{equal_gpus(1)};
  const auto full = FakeNvml::table();
  Table table;
  table.init = full.init;
  table.shutdown = full.shutdown;
  table.device_count = full.device_count;
  table.device_handle = full.device_handle;
  table.uuid = full.uuid;
  const auto device = read(table).at(0);
  EXPECT_EQ(device.uuid, test::fake_uuid(0));
  EXPECT_EQ(device.name, "");
  EXPECT_EQ(device.pci_address, "");
  EXPECT_EQ(device.memory.physical_total, std::nullopt);
  EXPECT_EQ(device.mig, MigMode::unsupported);
  EXPECT_EQ(device.problem, "");
}

TEST(NvmlDevices, a_count_that_is_nonsense_is_an_error_and_no_loop) {
  FakeNvml fake{equal_gpus(1)};
  fake.extra_count = 4'000'000'000U;
  const auto devices = read_devices(FakeNvml::table());
  ASSERT_FALSE(devices);
  EXPECT_THAT(devices.error().message, HasSubstr("4000000001 GPUs, expected at most 256"));
}

TEST(NvmlDevices, a_driver_that_went_away_is_an_error) {
  FakeNvml fake{equal_gpus(2)};
  fake.gpus[1].uuid_code = kUninitialized;
  const auto devices = read_devices(FakeNvml::table());
  ASSERT_FALSE(devices);
  EXPECT_EQ(devices.error().device_code, kUninitialized);
}

TEST(NvmlSession, is_one_start_and_one_end) {
  FakeNvml fake{equal_gpus(2)};
  const auto table = FakeNvml::table();
  {
    auto session = Session::open(table).value();
    EXPECT_EQ(session.devices().value().size(), 2U);
    auto moved = std::move(session);
    EXPECT_EQ(moved.devices().value().size(), 2U);
    EXPECT_EQ(fake.starts, 1);
    EXPECT_EQ(fake.ends, 0);
    moved = Session::open(table).value();
    EXPECT_EQ(fake.starts, 2);
    EXPECT_EQ(fake.ends, 1) << "the one that was replaced";
  }
  EXPECT_EQ(fake.ends, 2);
}

TEST(NvmlSession, says_what_is_missing) {
  FakeNvml fake;
  const auto table = FakeNvml::table();
  struct Case {
    Code code;
    char const* words;
  };
  for (auto const& [code, words] :
       {Case{kDriverNotLoaded, "the NVIDIA driver is not loaded (NVML code 9), starting NVML"},
        Case{kNoPermission, "no permission (NVML code 4)"},
        Case{kVersionMismatch, "its kernel module are of different versions (NVML code 18)"},
        Case{kUnknown, "NVML failed (NVML code 999)"}, Case{12345, "NVML failed (NVML code 12345)"}}) {
    fake.init_code = code;
    const auto session = Session::open(table);
    ASSERT_FALSE(session);
    EXPECT_EQ(session.error().kind, ErrorKind::driver);
    EXPECT_EQ(session.error().layer, Layer::driver);
    EXPECT_EQ(session.error().device_code, code);
    EXPECT_THAT(session.error().message, HasSubstr(words));
  }
  EXPECT_EQ(fake.ends, 0) << "what did not start is not ended";
}

TEST(NvmlSession, a_driver_without_a_device_is_no_error) {
  FakeNvml fake;
  const auto table = FakeNvml::table();
  EXPECT_TRUE(Session::open(table).value().devices().value().empty()) << "it counts none";
  fake.count_code = kNotFound;
  EXPECT_TRUE(Session::open(table).value().devices().value().empty()) << "counting finds none";
  EXPECT_EQ(fake.ends, 2);
  for (const Code code : {kNotFound, kGpuNotFound}) {
    fake.init_code = code;
    EXPECT_TRUE(Session::open(table).value().devices().value().empty()) << "starting finds none";
  }
  EXPECT_EQ(fake.ends, 2) << "what did not start is not ended";
}

TEST(NvmlSession, sessions_of_many_threads_are_apart) {
  FakeNvml fake{equal_gpus(4)};
  const auto table = FakeNvml::table();
  constexpr int kThreads = 8, kRounds = 50;
  std::vector<std::size_t> seen(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < kRounds; ++round) seen[thread] += Session::open(table).value().devices().value().size();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(seen, testing::Each(4U * kRounds));
  EXPECT_EQ(fake.starts, kThreads * kRounds);
  EXPECT_EQ(fake.ends, kThreads * kRounds);
}

/// What `check` says in a forked child: 0 when it holds.
template <class Check>
int in_child(Check check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(NvmlFork, a_child_may_use_it_when_the_parent_had_closed_it) {
  FakeNvml fake{equal_gpus(1)};
  const auto table = FakeNvml::table();
  EXPECT_TRUE(Session::open(table).has_value());
  EXPECT_EQ(in_child([&] { return Session::open(table).value().devices().value().size() == 1; }), 0);
}

TEST(NvmlFork, a_child_of_an_open_session_is_refused_and_ends_nothing) {
  FakeNvml fake{equal_gpus(1)};
  const auto table = FakeNvml::table();
  auto session = Session::open(table).value();
  EXPECT_EQ(in_child([&] {
              const auto own = Session::open(table);
              const auto inherited = session.devices();
              const bool is_refused = !own && own.error().kind == ErrorKind::unsupported && !inherited &&
                                      inherited.error().kind == ErrorKind::unsupported;
              {
                const auto ended = std::move(session);
              }
              return is_refused && fake.starts == 1 && fake.ends == 0;
            }),
            0);
  EXPECT_EQ(session.devices().value().size(), 1U) << "the parent's goes on";
  EXPECT_TRUE(usable_after_fork());
}

}  // namespace
}  // namespace headroom::device::nvml
