// Post-mortems for tests: written into a string from any flight memory, and a folder of one's own.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/post_mortem.hpp>
#include <headroom/post_mortem_reader.hpp>

#include "dump/byte_sink.hpp"
#include "dump/json_stream.hpp"
#include "dump/workspace.hpp"
#include "dump/writer.hpp"
#include "flight/raw_reads.hpp"

namespace headroom::test {

/// Takes so many bytes, then there is no space left.
class StringSink final : public dump::ByteSink {
public:
  explicit StringSink(std::size_t room = ~std::size_t{0}) noexcept : room_{room} {}
  [[nodiscard]] int write(std::span<char const> bytes) noexcept override {
    ++writes;
    if (bytes.size() > room_ - text.size()) return ENOSPC;
    text.append(bytes.data(), bytes.size());
    return 0;
  }
  std::string text;
  std::size_t writes = 0;

private:
  std::size_t room_;
};

struct Writing {
  PostMortemOptions options{};
  flight::Liveness liveness = flight::Liveness::living;
  std::string_view reason = "a test";
  dump::KnownFailure const* failure = nullptr;
  std::string_view events_left_out{};
};

/// The whole dump, or what came before the sink was full.
inline std::string post_mortem_text(flight::FlightView const& view, Writing const& how = {}, std::size_t room = ~std::size_t{0}) {
  auto const& mapped = flight::ViewAccess::mapped(view);
  dump::Workspace workspace{dump::WorkspaceSizes::of(mapped)};
  StringSink sink{room};
  dump::JsonStream json{sink, workspace.buffer};
  dump::Writer{{.mapped = mapped,
                .liveness = how.liveness,
                .kind = dump::ReasonKind::requested,
                .reason = how.reason,
                .failure = how.failure,
                .options = how.options,
                .events_left_out = how.events_left_out,
                .sequence = 0,
                .counts = {}},
               workspace,
               json}
      .write();
  static_cast<void>(json.finish());
  return std::move(sink.text);
}

/// A folder that goes with it.
class TemporaryFolder {
public:
  TemporaryFolder() {
    auto pattern = (std::filesystem::temp_directory_path() / "headroom-dumps-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(TemporaryFolder const&) = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;
  [[nodiscard]] std::filesystem::path const& path() const noexcept { return path_; }
  /// Names in it or in a folder below, sorted.
  [[nodiscard]] std::vector<std::string> names(std::string const& below = {}) const {
    std::vector<std::string> names;
    std::error_code missing;
    for (auto const& entry : std::filesystem::directory_iterator{path_ / below, missing})
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

private:
  std::filesystem::path path_;
};

}  // namespace headroom::test
