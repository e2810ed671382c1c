// The rows of the two long tables, cell by cell.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <headroom/flight_reader.hpp>

namespace headroom::dump {

/// One row while it is parsed. A cell more than any table has is counted and not kept.
class Row {
public:
  static constexpr std::size_t kCells = 17;
  static constexpr std::size_t kTextBytes = 32;  // words and numbers: no cell of ours is longer

  enum class Type : std::uint8_t { null, number, hex, word, other };
  struct Cell {
    Type type = Type::null;
    std::uint64_t number = 0;
    std::array<char, kTextBytes> text{};
    std::size_t length = 0;
    [[nodiscard]] std::string_view word() const noexcept { return {text.data(), length}; }
    [[nodiscard]] bool is_number() const noexcept { return type == Type::number || type == Type::hex; }
  };

  void clear() noexcept { count_ = 0; }
  void add_number(std::uint64_t number) noexcept;
  void add_null() noexcept;
  void add_other() noexcept;
  void add_text(std::string_view text) noexcept;

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] Cell const& operator[](std::size_t index) const noexcept { return cells_[index]; }

private:
  [[nodiscard]] Cell* next() noexcept;
  std::array<Cell, kCells> cells_{};
  std::size_t count_ = 0;
};

/// Empty: the row is taken. Else what is wrong with it.
[[nodiscard]] std::string take_live_row(Row const& row, flight::LiveAllocation& allocation);
[[nodiscard]] std::string take_event_row(Row const& row, flight::Event& event);

}  // namespace headroom::dump
