// Writes the seed corpus of post_mortem_writer_fuzz into a folder: one small flight file with something in every region.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "compact_flight.hpp"

int main(int count, char** arguments) {
  if (count != 2) {
    static_cast<void>(std::fprintf(stderr, "usage: post_mortem_writer_seeds FOLDER\n"));
    return 2;
  }
  const std::filesystem::path folder{arguments[1]};
  std::filesystem::create_directories(folder);
  const auto file = headroom::flight::compact_flight();
  std::ofstream out{folder / "whole", std::ios::binary | std::ios::trunc};
  out.write(reinterpret_cast<char const*>(file.bytes().data()), static_cast<std::streamsize>(file.bytes().size()));
  return out.good() ? 0 : 1;
}
