#include "command/replay_watch.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/output.hpp"
#include "command/stop_signals.hpp"

namespace headroom::command {
namespace {

using Clock = std::chrono::steady_clock;

// A full ring of 2,048 records is written in about a millisecond at full speed: at this pace a replay at recorded speed loses
// nothing, and one at full speed is not slowed down.
constexpr auto kPause = std::chrono::milliseconds{2};
constexpr auto kBetweenDrawings = std::chrono::milliseconds{100};
constexpr auto kBeforeFirstDrawing = std::chrono::milliseconds{500};  // what is done by then needs no progress line

}  // namespace

ReplayWatch::ReplayWatch(std::optional<flight::FlightView> const& view, Options options) : options_{options} {
  if (view) counter_.emplace(*view);
  thread_ = std::jthread{[this](std::stop_token const& token) { run(token); }};
}

std::optional<EventCounts> ReplayWatch::finish() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  return counter_ ? std::optional{counter_->finish()} : std::nullopt;
}

void ReplayWatch::run(std::stop_token const& token) {
  auto next_drawing = Clock::now() + kBeforeFirstDrawing;
  auto has_drawn = false;
  while (!token.stop_requested()) {
    if (counter_) counter_->poll();
    auto const now = Clock::now();
    if (options_.deadline && now >= *options_.deadline) request_stop();
    if (options_.draws && now >= next_drawing) {
      draw();
      has_drawn = true;
      next_drawing = now + kBetweenDrawings;
    }
    std::this_thread::sleep_for(kPause);
  }
  if (has_drawn) std::fputs("\r\x1b[K", stderr);
}

void ReplayWatch::draw() const {
  auto const applied = progress_.events.load(std::memory_order_relaxed);
  auto const loops = progress_.loops.load(std::memory_order_relaxed);
  auto const in_loop = std::min(applied - std::min(applied, loops * options_.events), options_.events);
  auto line = "\r\x1b[K" + bar(in_loop, options_.events, 30) + ' ' + format_count(in_loop) + " of " +
              format_count(options_.events) + " events";
  if (options_.loops == kReplayForever) {
    line += ", loop " + format_count(loops + 1);
  } else if (options_.loops > 1) {
    line += ", loop " + format_count(loops + 1) + " of " + format_count(options_.loops);
  }
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace headroom::command
