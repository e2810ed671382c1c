// Whether there is a GPU to work with, and what is said where there is none.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_resources.hpp"
#include "device/cuda/cuda_device.hpp"

namespace headroom {
namespace {

using device::CudaAccess;
using ::testing::AllOf;
using testing::CudaCall;
using testing::FakeCuda;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::make_fake_async;
using testing::make_fake_direct;

void expect_unusable(FakeCuda& cuda, int code, ::testing::Matcher<std::string> const& words) {
  auto const counted = device::count_cuda_devices(&cuda);
  ASSERT_FALSE(counted);
  auto const async = CudaAccess::async(&cuda, 0, {});
  ASSERT_FALSE(async);
  auto const direct = CudaAccess::direct(&cuda, 0);
  ASSERT_FALSE(direct);
  for (auto const& error : {counted.error(), async.error(), direct.error()}) {
    EXPECT_EQ(error.kind, ErrorKind::unsupported);
    EXPECT_EQ(error.layer, Layer::driver);
    EXPECT_EQ(error.device_code, code);
    EXPECT_THAT(error.message, words);
  }
  EXPECT_THAT(cuda.active_devices(), IsEmpty()) << "no context";
  EXPECT_EQ(cuda.last_error(), 0) << "what failed was ours";
}

TEST(CudaSetup, without_the_toolkit_it_says_so) {
  auto const made = CudaAccess::async(nullptr, 0, {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::unsupported);
  EXPECT_THAT(made.error().message, AllOf(HasSubstr("built without the CUDA toolkit"), HasSubstr("HEADROOM_CUDA")));
  EXPECT_EQ(CudaAccess::direct(nullptr, 0).error().kind, ErrorKind::unsupported);
  EXPECT_EQ(device::count_cuda_devices(nullptr).error().kind, ErrorKind::unsupported);
}

TEST(CudaSetup, without_a_driver_it_says_what_to_install) {
  FakeCuda cuda({.driver_version = 0});
  expect_unusable(cuda, 35, AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("CUDA 13.0")));
  EXPECT_EQ(cuda.calls(CudaCall::device_count), 0U) << "nothing more to be learnt";
}

TEST(CudaSetup, a_driver_that_is_too_old_is_named_with_both_versions) {
  FakeCuda cuda({.driver_version = 11080});
  cuda.fail(CudaCall::device_count, 35, 3);
  expect_unusable(cuda, 35, AllOf(HasSubstr("supports CUDA 11.8"), HasSubstr("built with CUDA 13.0"), HasSubstr("newer driver")));
}

TEST(CudaSetup, a_driver_without_a_visible_device_points_to_what_hides_it) {
  FakeCuda cuda({.devices = 0});
  expect_unusable(cuda, 100, AllOf(HasSubstr("no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES"), HasSubstr("nvidia-smi")));
}

TEST(CudaSetup, the_toolkits_stub_is_told_from_a_driver) {
  FakeCuda cuda;
  cuda.fail(CudaCall::driver_version, 34, 3);
  expect_unusable(cuda, 34, AllOf(HasSubstr("stub"), HasSubstr("LD_LIBRARY_PATH")));
}

TEST(CudaSetup, any_other_refusal_has_cudas_code_and_words) {
  FakeCuda cuda;
  cuda.fail(CudaCall::device_count, 802);
  auto const made = CudaAccess::async(&cuda, 0, {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::driver);
  EXPECT_EQ(made.error().device_code, 802);
  EXPECT_THAT(made.error().message, HasSubstr("fake error 802"));
}

TEST(CudaSetup, an_error_of_the_program_stays_visible_when_ours_replaced_it) {
  FakeCuda cuda({.devices = 0});
  cuda.set_last_error(9);
  EXPECT_FALSE(device::count_cuda_devices(&cuda));
  EXPECT_NE(cuda.last_error(), 0);
}

TEST(CudaSetup, counting_makes_no_context) {
  FakeCuda cuda({.devices = 3});
  EXPECT_EQ(device::count_cuda_devices(&cuda).value(), 3);
  EXPECT_THAT(cuda.active_devices(), IsEmpty());
}

TEST(CudaSetup, an_ordinal_that_does_not_exist_is_refused_with_those_that_do) {
  FakeCuda cuda({.devices = 2});
  for (std::int32_t const ordinal : {-1, 2, 1000}) {
    auto const made = CudaAccess::async(&cuda, ordinal, {});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().kind, ErrorKind::invalid_argument);
    EXPECT_THAT(made.error().message, AllOf(HasSubstr("device " + std::to_string(ordinal)), HasSubstr("from 0 to 1")));
    EXPECT_EQ(CudaAccess::direct(&cuda, ordinal).error().kind, ErrorKind::invalid_argument);
  }
  EXPECT_THAT(cuda.active_devices(), IsEmpty());
}

TEST(CudaSetup, a_device_without_pools_has_only_the_direct_resource) {
  auto const async = make_fake_async({.memory_pools = false});
  ASSERT_FALSE(async);
  EXPECT_EQ(async.error().kind, ErrorKind::unsupported);
  EXPECT_THAT(async.error().message, HasSubstr("DirectCudaResource"));
  EXPECT_TRUE(make_fake_direct({.memory_pools = false}));
}

TEST(CudaSetup, what_fails_half_way_leaves_nothing_behind) {
  for (auto const call : {CudaCall::properties, CudaCall::init_device, CudaCall::enter, CudaCall::pool_create,
                          CudaCall::pool_set_release_threshold}) {
    FakeCuda cuda;
    cuda.fail(call, 46);
    auto const made = CudaAccess::async(&cuda, 0, {});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().kind, ErrorKind::driver);
    EXPECT_EQ(made.error().device_code, 46);
    EXPECT_EQ(cuda.last_error(), 0);
    EXPECT_TRUE(CudaAccess::async(&cuda, 0, {}));
  }
}

TEST(CudaSetup, a_resource_knows_its_device) {
  auto const both = make_fake_async({.devices = 2, .bytes = 1 << 20}, 1).value();
  auto const& resource = *both.resource;
  EXPECT_EQ(resource.ordinal(), 1);
  EXPECT_EQ(resource.device_name(), "Fake GPU");
  EXPECT_EQ(resource.pci_bus_id(), "0000:a1:00.0");
  EXPECT_THAT(std::string{resource.device_uuid()}, ::testing::MatchesRegex("GPU-00000000-0000-00..-0000-000000000001"));
  EXPECT_EQ(resource.memory_info().total, std::uint64_t{1} << 20);
  EXPECT_EQ(resource.name(), "cuda-async");
  EXPECT_FALSE(resource.host_accessible());
  EXPECT_TRUE(resource.tracks_uses());
  EXPECT_TRUE(resource.reports_returns());
  EXPECT_EQ(both.resource->allocate({.bytes = 0}).value().device, 1);

  auto const device = cuda_device_over(both.resource).value();
  EXPECT_EQ(device.kind(), DeviceKind::cuda);
  EXPECT_EQ(device.ordinal(), 1);
  EXPECT_EQ(device.name(), "Fake GPU");
  EXPECT_EQ(device.uuid(), resource.device_uuid());
  EXPECT_EQ(device.pci_address(), "0000:a1:00.0") << "ledgers and listings name one card";
  EXPECT_EQ(&device.resource(), both.resource.get());
  EXPECT_EQ(cuda_device_over(std::shared_ptr<AsyncCudaResource>{}).error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(cuda_device_over(std::shared_ptr<DirectCudaResource>{}).error().kind, ErrorKind::invalid_argument);
}

TEST(CudaSetup, the_pool_keeps_what_it_is_told_to) {
  EXPECT_EQ(make_fake_async().value().cuda->release_threshold(), UINT64_MAX);
  auto const both = make_fake_async({}, 0, {.release_threshold_bytes = 12345}).value();
  EXPECT_EQ(both.cuda->release_threshold(), 12345U);
  EXPECT_EQ(both.resource->options().release_threshold_bytes, 12345U);
}

// The one that users call, on the machine that runs the tests.
TEST(CudaSetup, this_machine_has_a_gpu_or_says_what_is_missing) {
  auto const count = cuda_device_count();
  if (count) {
    EXPECT_GT(*count, 0);
    return;
  }
  EXPECT_EQ(count.error().kind, ErrorKind::unsupported) << count.error().to_string();
  EXPECT_FALSE(count.error().message.empty());
  EXPECT_EQ(cuda_device(0).error().message, count.error().message);
  EXPECT_EQ(cuda_device(0, {.allocator = CudaAllocator::direct}).error().message, count.error().message);
  EXPECT_FALSE(testing::real_cuda_available());
}

}  // namespace
}  // namespace headroom
