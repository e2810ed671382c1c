// Stacks as PyTorch's tools want them: a list of frames, innermost first, each a file, a line and a function.
#pragma once

#include <cstdint>
#include <string_view>

#include "dump/pickle_stream.hpp"

namespace headroom::dump {

struct TorchFrame {
  std::string_view file{};
  std::uint32_t line = 0;
  std::string_view function{};

  friend bool operator==(TorchFrame const&, TorchFrame const&) = default;
};

/// Of "folder/file.cpp:12 function" or "file.cpp:12"; whatever else it is, is the name of a function.
[[nodiscard]] TorchFrame torch_frame(std::string_view site) noexcept;

/// The member `frames`. `stack` has the outermost frame first, joined by ';'; "" has none.
void write_frames(PickleStream& pickle, std::string_view stack);

}  // namespace headroom::dump
