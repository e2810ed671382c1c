#include "text_output.hpp"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

namespace headroom::viewer {

Result<void> TextOutput::write(std::string text) {
  if (path_.empty() || (has_written_ && text == last_)) return success();
  auto const failed = [this] { return fail(ErrorKind::io, Layer::request, path_ + ": cannot be written"); };
  if (!is_file()) {
    std::cout << text << std::flush;
    if (!std::cout) return failed();
  } else if (std::error_code error; !std::filesystem::is_regular_file(path_, error) && std::filesystem::exists(path_, error)) {
    std::ofstream file{path_, std::ios::binary};  // a pipe, a terminal: not to be replaced
    if (!(file << text << std::flush)) return failed();
  } else {
    auto const fresh = path_ + ".new";
    if (std::ofstream file{fresh, std::ios::binary | std::ios::trunc}; !(file << text << std::flush)) return failed();
    std::filesystem::rename(fresh, path_, error);
    if (error) return failed();
  }
  last_ = std::move(text);
  has_written_ = true;
  return success();
}

}  // namespace headroom::viewer
