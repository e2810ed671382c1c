#include "command/history_file.hpp"

#include <string>
#include <utility>

#include "command/progress.hpp"

namespace headroom::command {

Result<TraceReader> open_history(Source& source, std::optional<std::uint32_t> device, std::string_view why_one) {
  auto reader = source.history();
  if (!reader) return tl::unexpected{std::move(reader.error())};
  if (device) {
    if (auto const chosen = reader->only_device(*device); !chosen) {
      auto error = chosen.error();
      error.message = "--trace-device " + std::to_string(*device) + ": " + error.message;
      return tl::unexpected{std::move(error)};
    }
  } else if (!why_one.empty() && reader->devices().size() > 1) {
    std::string devices;
    for (auto const each : reader->devices()) devices += (devices.empty() ? "" : ", ") + std::to_string(each);
    return fail(ErrorKind::invalid_argument, Layer::request,
                reader->name() + ": a history of devices " + devices + ", " + std::string{why_one} +
                    "; expected --trace-device to say which");
  }
  return reader;
}

Result<TraceHistory> load_history(Source& source, std::optional<std::uint32_t> device) {
  Progress const progress{[&source] { return reading_line(source); }};
  auto reader = open_history(source, device, "each with a budget of its own");
  if (!reader) return tl::unexpected{std::move(reader.error())};
  return TraceHistory::load(*reader);
}

ExitCode exit_code_for(Error const& error) noexcept {
  return error.kind == ErrorKind::invalid_argument ? ExitCode::usage : ExitCode::broken_input;
}

}  // namespace headroom::command
