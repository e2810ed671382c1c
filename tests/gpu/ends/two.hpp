// What one.cpp asks of two.cpp: two translation units whose statics are made and destroyed in an order that nobody fixes.
#pragma once

#include <cstdint>

#include <headroom/cuda_resource.hpp>
#include <headroom/manager.hpp>

/// The device by way of a pool, or of cudaMalloc when HEADROOM_ENDS_RESOURCE is `direct`; made by its first caller.
[[nodiscard]] headroom::Result<headroom::Device>& static_device();
/// The manager of it, made by its first caller, also before main.
[[nodiscard]] headroom::Result<headroom::GpuMemoryManager>& static_manager();
/// Bytes that two.cpp allocated before main.
inline constexpr std::uint64_t kBytesOfTwo = 700;
