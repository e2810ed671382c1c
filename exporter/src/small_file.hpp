// headroom: a small file of the administrator's, read whole.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

#include <headroom/error.hpp>

namespace headroom::exporter {

inline constexpr std::size_t kSmallFileBytes = std::size_t{1} << 20;

/// Errors: io (the system's reason, nothing in it, more than 1 MiB); the message begins with `what` and the path.
[[nodiscard]] inline Result<std::string> read_small_file(std::string const& what, std::string const& path) {
  const auto refuse = [&](std::string const& why) {
    return fail(ErrorKind::io, Layer::request, what + " '" + path + "': " + why);
  };
  const std::unique_ptr<std::FILE, decltype([](std::FILE* file) { (void)std::fclose(file); })> file{
      std::fopen(path.c_str(), "rbe")};
  if (!file) return refuse(std::generic_category().message(errno));
  std::string text(kSmallFileBytes + 1, '\0');
  const auto size = std::fread(text.data(), 1, text.size(), file.get());
  if (std::ferror(file.get()) != 0) return refuse(std::generic_category().message(errno));
  if (size == 0) return refuse("is empty");
  if (size > kSmallFileBytes) return refuse("is larger than 1 MiB");
  text.resize(size);
  return text;
}

}  // namespace headroom::exporter
