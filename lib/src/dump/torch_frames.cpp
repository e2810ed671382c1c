#include "dump/torch_frames.hpp"

#include <charconv>
#include <system_error>

namespace headroom::dump {

// The first colon that a line number follows, up to a space or the end: a function's name may have such a thing too, a file's hardly.
TorchFrame torch_frame(std::string_view site) noexcept {
  for (auto colon = site.find(':'); colon != std::string_view::npos; colon = site.find(':', colon + 1)) {
    auto const* const digits = site.data() + colon + 1;
    auto const* const end = site.data() + site.size();
    std::uint32_t line = 0;
    auto const [stopped, error] = std::from_chars(digits, end, line);
    if (error != std::errc{} || (stopped != end && *stopped != ' ')) continue;
    auto const rest = site.substr(static_cast<std::size_t>(stopped - site.data()));
    return {.file = site.substr(0, colon), .line = line, .function = rest.empty() ? rest : rest.substr(1)};
  }
  return {.file = {}, .line = 0, .function = site};
}

void write_frames(PickleStream& pickle, std::string_view stack) {
  pickle.key("frames");
  pickle.begin_list();
  while (!stack.empty()) {
    auto const semicolon = stack.rfind(';');
    auto const start = semicolon == std::string_view::npos ? 0 : semicolon + 1;
    auto const frame = torch_frame(stack.substr(start));
    stack = stack.substr(0, start == 0 ? 0 : semicolon);
    pickle.begin_dict();
    pickle.member("name", frame.function);
    pickle.member("filename", frame.file);
    pickle.member("line", frame.line);
    pickle.end_dict();
  }
  pickle.end_list();
}

}  // namespace headroom::dump
