#include <algorithm>

#include <headroom/log_sink.hpp>

namespace headroom {

std::string_view to_string(LogLine::Action action) noexcept {
  switch (action) {
    case LogLine::Action::allocate: return "allocate";
    case LogLine::Action::allocate_failure: return "allocate failure";
    case LogLine::Action::free: return "free";
    case LogLine::Action::free_failure: return "free failure";
  }
  return "unknown";
}

Result<void> LogSink::flush() { return {}; }

Result<void> CallbackSink::write(std::span<LogLine const> lines) {
  if (!callback_) return fail(ErrorKind::invalid_argument, Layer::request, "a CallbackSink needs a function, got none");
  return callback_(lines);
}

Result<void> MemorySink::write(std::span<LogLine const> lines) {
  const std::scoped_lock lock{mutex_};
  for (auto const& line : lines) {
    if (ring_.size() < capacity_) {
      ring_.push_back(line);
      continue;
    }
    ++dropped_;
    if (capacity_ == 0) continue;
    ring_[oldest_] = line;
    oldest_ = (oldest_ + 1) % capacity_;
  }
  return {};
}

std::vector<LogLine> MemorySink::lines() const {
  const std::scoped_lock lock{mutex_};
  std::vector<LogLine> lines;
  lines.reserve(ring_.size());
  const auto oldest = ring_.begin() + static_cast<std::ptrdiff_t>(oldest_);
  std::copy(oldest, ring_.end(), std::back_inserter(lines));
  std::copy(ring_.begin(), oldest, std::back_inserter(lines));
  return lines;
}

std::uint64_t MemorySink::dropped() const noexcept {
  const std::scoped_lock lock{mutex_};
  return dropped_;
}

}  // namespace headroom
