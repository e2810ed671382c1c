// Ends with 77, which ctest counts as skipped, where no device can be used: there is nothing to run then, and the error says why.
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <headroom/cuda_resource.hpp>

int main(int count, char** arguments) {
  // Streams of one process must not share a channel of the device: one that a test holds back would hold up another.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  testing::InitGoogleTest(&count, arguments);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  const auto device = headroom::cuda_device(0);
  if (!device) {
    std::printf("[  SKIPPED ] no device: %s\n", device.error().to_string().c_str());
    return 77;
  }
  int driver = 0;
  int runtime = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  std::printf("device %s, driver for CUDA %d.%d, runtime %d.%d\n", device->name().c_str(), driver / 1000, driver % 1000 / 10,
              runtime / 1000, runtime % 1000 / 10);
  return RUN_ALL_TESTS();
}
