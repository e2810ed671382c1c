// Conversions for tests: of a script (scripted_source.hpp) or of a history that a test writes out, into a string.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <headroom/convert.hpp>

#include "post_mortems.hpp"
#include "scripted_source.hpp"

namespace headroom::test {

/// Takes so many bytes in all, then says that there is no room.
class TextSink {
public:
  explicit TextSink(std::size_t room = ~std::size_t{0}) : room_{room} {}
  [[nodiscard]] ConvertSink function() {
    return [this](std::string_view bytes) -> Result<void> {
      if (bytes.size() > room_ - text.size()) return fail(ErrorKind::io, Layer::request, "the test's sink is full");
      text += bytes;
      return {};
    };
  }
  std::string text;

private:
  std::size_t room_;
};

/// A process that has ended, with one manager, two tags and a site.
[[nodiscard]] inline std::shared_ptr<follow::Script> training_script() {
  auto script = std::make_shared<follow::Script>();
  script->name(1, "weights");
  script->name(2, "cache");
  script->name(9, "train.cpp:4 void step()");
  script->ended = true;
  script->book().name = "main";
  return script;
}

inline std::unique_ptr<follow::Source> source_of(std::shared_ptr<follow::Script> script) {
  return std::make_unique<follow::ScriptedSource>(std::move(script));
}

/// The history lies in a file of its own while it is read.
class HistoryFile {
public:
  explicit HistoryFile(std::string_view lines) : path_{(folder_.path() / "history.csv").string()} {
    std::ofstream{path_} << "Thread,Time,Action,Pointer,Size,Stream\n" << lines;
  }
  [[nodiscard]] std::unique_ptr<follow::Source> source() const { return follow::open_history_source(path_).value(); }
  [[nodiscard]] std::string const& path() const noexcept { return path_; }

private:
  TemporaryFolder folder_;
  std::string path_;
};

inline std::string converted(std::unique_ptr<follow::Source> source, ConvertFormat format, ConvertOptions const& options = {},
                             ConvertReport* report = nullptr) {
  TextSink sink;
  auto done = convert(std::move(source), format, sink.function(), options);
  EXPECT_TRUE(done) << done.error().message;
  if (done && report != nullptr) *report = *done;
  return std::move(sink.text);
}

inline Error conversion_error(std::unique_ptr<follow::Source> source, ConvertFormat format, ConvertOptions const& options = {}) {
  TextSink sink;
  auto done = convert(std::move(source), format, sink.function(), options);
  EXPECT_FALSE(done);
  return done ? Error{} : std::move(done.error());
}

/// Of a Chrome trace: the values of a counter, in order, as (µs, value).
inline std::vector<std::pair<double, std::uint64_t>> counter_of(nlohmann::json const& trace, std::string const& name) {
  std::vector<std::pair<double, std::uint64_t>> values;
  for (auto const& event : trace.at("traceEvents")) {
    if (event.at("ph") != "C" || event.at("name") != name) continue;
    values.emplace_back(event.at("ts").get<double>(), event.at("args").begin().value().get<std::uint64_t>());
  }
  return values;
}

/// Events of a phase, as "name@µs".
inline std::vector<std::string> events_of(nlohmann::json const& trace, std::string_view phase) {
  std::vector<std::string> events;
  for (auto const& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) {
      events.push_back(event.at("name").get<std::string>() + '@' +
                       std::to_string(static_cast<std::uint64_t>(event.at("ts").get<double>() * 1000)));
    }
  }
  return events;
}

}  // namespace headroom::test
