// headroom: a fixed window over a byte source that always shows whole lines.
//
// The window's complete lines lie between text() and complete_end(); the parser runs over them without a bound of its own, since
// every one ends in '\n' and kReadableSlack bytes behind the last may be read. When they are used up, refill() moves the
// unfinished rest to the front and reads on.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trace/byte_source.hpp"
#include "trace/csv_record.hpp"

namespace headroom::trace {

class LineBuffer {
public:
  static constexpr std::size_t kBytes = std::size_t{1} << 20U;

  enum class State : std::uint8_t { lines, line_too_long, end };

  explicit LineBuffer(std::unique_ptr<ByteSource> source)
      : source_{std::move(source)}, buffer_(kBytes + kReadableSlack), text_{buffer_.data()}, filled_{text_}, complete_{text_} {}

  [[nodiscard]] char const* text() const noexcept { return text_; }
  [[nodiscard]] char const* complete_end() const noexcept { return complete_; }
  /// What has been read, whole lines or not.
  [[nodiscard]] std::string_view seen() const noexcept { return {text_, static_cast<std::size_t>(filled_ - text_)}; }
  /// True when the line before `line_end` is the last one and had no line end in the file (refill() put one there).
  [[nodiscard]] bool is_unfinished(char const* line_end) const noexcept { return line_end_added_ && line_end == filled_; }

  void consume_to(char const* text) noexcept { text_ = text; }

  /// Call it when text() has reached complete_end(). `lines`: there is at least one whole line. Errors: those of the source.
  [[nodiscard]] Result<State> refill();

private:
  std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_;
  char const* text_;      // first byte not consumed
  char const* filled_;    // behind the last byte read
  char const* complete_;  // behind the last '\n' read
  std::optional<Error> error_;
  bool source_over_ = false;
  bool line_end_added_ = false;
};

}  // namespace headroom::trace
