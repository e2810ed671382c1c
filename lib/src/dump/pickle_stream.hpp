// A pickle of plain values, protocol 4, written as it comes through a small buffer that somebody else owns.
//
// * Only what every reader of memory snapshots knows is used, those in browsers too: dicts, lists, pairs, texts, numbers, booleans, none;
//   no frames, no globals, nothing that a reader would have to run.
// * A text is written out once and fetched from the reader's memo from then on, as long as there are at most kMostTexts of them, of
//   kMostTextBytes together; those that come later are written out each time. Nothing else is kept, however long the pickle becomes.
// * Texts are any bytes. A pickle's are UTF-8: a byte that is no part of it is written as the JSON of post-mortems does, as \xHH.
// * Long containers are filled a thousand values at a time, so that a reader's stack stays short.
//
// Memory: the distinct texts, up to the bounds above. Throws bad_alloc for those, and nothing else; a failed write is kept, and told by
// error() and finish().
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "dump/byte_sink.hpp"

namespace headroom::dump {

class PickleStream {
public:
  static constexpr std::size_t kMostTexts = std::size_t{1} << 16U;
  static constexpr std::size_t kMostTextBytes = std::size_t{8} << 20U;
  static constexpr std::uint32_t kBatch = 1000;  ///< values of a container between two marks

  /// `buffer` has room for 64 bytes at least.
  PickleStream(ByteSink& sink, std::span<char> buffer) noexcept;
  PickleStream(PickleStream const&) = delete;
  PickleStream& operator=(PickleStream const&) = delete;

  void begin_dict() noexcept { begin('}'); }
  void end_dict() noexcept { end('u'); }
  void begin_list() noexcept { begin(']'); }
  void end_list() noexcept { end('e'); }
  /// The name of the value that follows, in a dict.
  void key(std::string_view name);

  /// Fewer than 2^32 bytes.
  void value(std::string_view text);
  void value(char const* text) { value(std::string_view{text}); }
  template <std::unsigned_integral T>
  void value(T number) noexcept {
    item();
    put_number(number);
  }
  template <std::signed_integral T>
  void value(T number) noexcept {
    item();
    put_signed(number);
  }
  void value(bool flag) noexcept { item(), put(flag ? '\x88' : '\x89'); }
  void value(double number) noexcept;
  void value(std::nullptr_t /*none*/) noexcept { item(), put('N'); }
  /// A tuple of two numbers.
  void pair(std::uint64_t first, std::uint64_t second) noexcept;

  template <class T>
  void member(std::string_view name, T const& content) {
    key(name);
    value(content);
  }

  /// The end of the one value that a pickle is, and everything to the sink. The error number of the first failed write, or 0.
  [[nodiscard]] int finish() noexcept;
  [[nodiscard]] int error() const noexcept { return error_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return flushed_ + used_; }

private:
  static constexpr std::size_t kDepth = 16;  // snapshots are 7 deep
  struct Level {
    bool keyed = false;       // a dict: keys count, values do not
    std::uint32_t batch = 0;  // values since the last mark
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
  };

  void begin(char opcode) noexcept;
  void end(char opcode) noexcept;
  void item() noexcept;
  void count_item(Level& level) noexcept;
  void put_text(std::string_view text);
  void put_plain_text(std::string_view text) noexcept;
  void put_number(std::uint64_t number) noexcept;
  void put_signed(std::int64_t number) noexcept;
  void put_little_endian(std::uint64_t number, std::size_t bytes) noexcept;
  void put(std::string_view bytes) noexcept;
  void put(char byte) noexcept {
    if (used_ == buffer_.size()) flush();
    buffer_[used_++] = byte;
  }
  void flush() noexcept;

  ByteSink& sink_;
  std::span<char> buffer_;
  std::size_t used_ = 0;
  std::uint64_t flushed_ = 0;
  std::array<Level, kDepth> levels_{};
  std::size_t depth_ = 0;
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> memo_{};  // as given, to its number in the reader's memo
  std::size_t memo_bytes_ = 0;
  int error_ = 0;
};

}  // namespace headroom::dump
