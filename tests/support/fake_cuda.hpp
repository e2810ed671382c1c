// A CUDA runtime made of numbers: devices with memory of a fixed size, streams and events in virtual time, the calling thread's
// current device and last error, and every error on demand. It behaves as CUDA is documented to, and where CUDA leaves something open
// it does the harder thing:
//
// * Addresses run from low to high in granules of 512 bytes, at the lowest place that fits; no two fakes share an address.
// * Memory freed on a stream serves nobody, not even that stream, until the stream has come to the free. (CUDA hands it out again on
//   the same stream at once.)
// * Time passes by one tick at each query, and up to what is waited for at each wait. A call enqueued on a stream takes one tick.
// * A failing call replaces the thread's last error, but for those that CudaApi marks as leaving it alone.
//
// It notices, as violations: a call on another device than the current one, memory, streams and events of another device, freed
// twice, or destroyed, and at its end streams, events, pools and memory that are left. They fail the test that runs when it ends.
//
// This header is the one to include. The fake is built in layers, each a class derived from the one before:
//   fake_cuda_calls.hpp    what every call passes through: counts, errors on demand, last error, violations
//   fake_cuda_devices.hpp  the devices and which of them is current
//   fake_cuda_streams.hpp  virtual time, streams, events
//   fake_cuda_memory.hpp   memory and pools
//
// Thread safety: every member. Set errors and hooks while one thread runs.
#pragma once

#include <gtest/gtest.h>

#include "fake_cuda_memory.hpp"

namespace headroom::testing {

class FakeCuda final : public FakeCudaMemory {
public:
  explicit FakeCuda(FakeCudaOptions const& options = {}) : FakeCudaMemory(options) {}
  ~FakeCuda() {
    if (unloaded()) return;
    note_streams_left();
    note_memory_left();
    for (auto const& text : noted()) ADD_FAILURE() << "CUDA was misused: " << text;
  }
};

}  // namespace headroom::testing
