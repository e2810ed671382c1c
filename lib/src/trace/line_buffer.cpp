#include "trace/line_buffer.hpp"

#include <algorithm>
#include <cstring>

namespace headroom::trace {

Result<LineBuffer::State> LineBuffer::refill() {
  // A line end that was put behind the file was consumed with its line: text_ is then one beyond.
  auto const rest = text_ < filled_ ? static_cast<std::size_t>(filled_ - text_) : 0;
  std::memmove(buffer_.data(), text_, rest);
  text_ = buffer_.data();
  complete_ = text_;
  auto used = rest;
  // No more reads than a whole line needs: it is shown at once even when the source is slow (a recording may still be going on).
  while (!source_over_ && !error_ && used < kBytes) {
    auto const count = source_->read({buffer_.data() + used, kBytes - used});
    if (!count) {
      // The whole lines before a broken place are delivered first.
      error_ = count.error();
      break;
    }
    source_over_ = *count == 0;
    auto const* const fresh = buffer_.data() + used;
    used += *count;
    // A rest without '\n' was searched before: only the fresh bytes can hold one.
    auto const* const line_end = *count == 0 ? nullptr : static_cast<char const*>(::memrchr(fresh, '\n', *count));
    if (line_end != nullptr) complete_ = line_end + 1;
    if (complete_ != text_) break;
    if (used > TraceReader::kMaxLineBytes + 2) break;
  }
  filled_ = buffer_.data() + used;
  if (complete_ == text_ && used > TraceReader::kMaxLineBytes + 2) return State::line_too_long;
  if (complete_ != text_) return State::lines;
  if (error_) return tl::unexpected{*error_};
  if (used == 0) return State::end;
  // The last line without a line end: give it one (there is room: it is no longer than kMaxLineBytes + 2).
  buffer_[used] = '\n';
  line_end_added_ = true;
  complete_ = filled_ + 1;
  return State::lines;
}

}  // namespace headroom::trace
