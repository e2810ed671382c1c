// What one.cpp asks of two.cpp: two translation units whose statics are made and destroyed in an order that nobody fixes.
#pragma once

#include <cstdint>

#include <headroom/manager.hpp>

/// The manager is made by its first caller, also before main.
[[nodiscard]] headroom::GpuMemoryManager& static_manager();
/// Bytes that two.cpp allocated before main.
inline constexpr std::uint64_t kBytesOfTwo = 700;
