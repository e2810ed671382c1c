#include "command/progress.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <utility>

#include <unistd.h>

#include <headroom/byte_size.hpp>

#include "command/output.hpp"

namespace headroom::command {
namespace {

constexpr auto kBeforeFirstDrawing = std::chrono::milliseconds{500};  // what is done by then needs no progress line
constexpr auto kBetweenDrawings = std::chrono::milliseconds{100};
constexpr std::size_t kBarWidth = 30;

void draw_until_stopped(std::stop_token const& token, std::function<std::string()> const& line) {
  std::mutex mutex;
  std::condition_variable_any changed;  // nobody notifies but the stop: the work goes on without us
  auto has_drawn = false;
  auto pause = kBeforeFirstDrawing;
  std::unique_lock lock{mutex};
  while (!changed.wait_for(lock, token, pause, [&token] { return token.stop_requested(); })) {
    auto const text = line();
    if (!text.empty()) {
      auto const drawn = "\r\x1b[K" + text;
      std::fwrite(drawn.data(), 1, drawn.size(), stderr);
      has_drawn = true;
    }
    pause = kBetweenDrawings;
  }
  if (has_drawn) std::fputs("\r\x1b[K", stderr);
}

}  // namespace

Progress::Progress(std::function<std::string()> line) {
  if (!draws_on_stderr()) return;
  thread_ = std::jthread{[line = std::move(line)](std::stop_token const& token) { draw_until_stopped(token, line); }};
}

Progress::~Progress() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

std::string reading_line(Source const& source) {
  auto const position = source.position();
  if (!position || position->size == 0) return {};
  return bar(position->read, position->size, kBarWidth) + ' ' + format_bytes(position->read) + " of " +
         format_bytes(position->size) + " read";
}

std::string progress_line(std::uint64_t done, std::uint64_t all, std::string const& things) {
  return bar(done, all, kBarWidth) + ' ' + format_count(done) + " of " + format_count(all) + ' ' + things;
}

}  // namespace headroom::command
