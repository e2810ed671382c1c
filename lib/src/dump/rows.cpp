#include "dump/rows.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "dump/numbers.hpp"
#include "dump/words.hpp"

namespace headroom::dump {
namespace {

using flight::EventKind;

/// The first cell that is not what its column wants, in words.
class Cells {
public:
  explicit Cells(Row const& row) noexcept : row_{row} {}

  std::uint64_t number(std::size_t index, std::uint64_t most = ~std::uint64_t{0}) {
    Row::Cell const& cell = row_[index];
    if (cell.is_number() && cell.number <= most) return cell.number;
    complain(index, cell.is_number() ? "at most " + std::to_string(most) : "a whole number");
    return 0;
  }
  std::uint64_t number_or_zero(std::size_t index, std::uint64_t most) {
    return row_[index].type == Row::Type::null ? 0 : number(index, most);
  }
  std::uint32_t id(std::size_t index) { return static_cast<std::uint32_t>(number(index, 0xFFFF'FFFF)); }
  /// A power of two as its logarithm.
  std::uint64_t log2(std::size_t index) {
    const std::uint64_t power = number(index);
    if (std::has_single_bit(power)) return static_cast<std::uint64_t>(std::countr_zero(power));
    complain(index, "a power of two");
    return 0;
  }
  template <class Enum, std::size_t N>
  Enum word(std::size_t index, std::array<std::string_view, N> const& words) {
    if (auto const value = value_of<Enum>(words, row_[index].word()); value && row_[index].type == Row::Type::word) return *value;
    complain(index, "a word of its column");
    return Enum{};
  }

  void complain(std::size_t index, std::string const& expected) {
    if (!problem_.empty()) return;
    Row::Cell const& cell = row_[index];
    const std::string found = cell.is_number()               ? std::to_string(cell.number)
                              : cell.type == Row::Type::word ? '\'' + std::string{cell.word()} + '\''
                              : cell.type == Row::Type::null ? "null"
                                                             : "something else";
    problem_ = "column " + std::to_string(index) + ": found " + found + ", expected " + expected;
  }
  [[nodiscard]] std::string take_problem() { return std::move(problem_); }

private:
  Row const& row_;
  std::string problem_;
};

std::string wrong_count(Row const& row, std::size_t expected) {
  return "found " + std::to_string(row.count()) + " columns, expected " + std::to_string(expected);
}

std::uint64_t kind_in(Row const& row, Cells& cells) {
  constexpr std::size_t kKind = 4;
  if (row[kKind].type == Row::Type::word) return static_cast<std::uint64_t>(cells.word<EventKind>(kKind, kEventKindWords));
  const std::uint64_t kind = cells.number(kKind, 255);
  if (kind == 0) cells.complain(kKind, "a kind, which is never 0");
  return kind;
}

}  // namespace

Row::Cell* Row::next() noexcept { return count_++ < kCells ? &cells_[count_ - 1] : nullptr; }

void Row::add_number(std::uint64_t number) noexcept {
  if (Cell* const cell = next()) *cell = {.type = Type::number, .number = number, .text = {}, .length = 0};
}
void Row::add_null() noexcept {
  if (Cell* const cell = next()) *cell = {};
}
void Row::add_other() noexcept {
  if (Cell* const cell = next()) cell->type = Type::other;
}
void Row::add_text(std::string_view text) noexcept {
  Cell* const cell = next();
  if (cell == nullptr) return;
  if (auto const number = whole_number(text)) {
    cell->type = text.starts_with("0x") ? Type::hex : Type::number;
    cell->number = *number;
  } else {
    cell->type = Type::word;
    cell->length = std::min(text.size(), kTextBytes);
    std::copy_n(text.begin(), cell->length, cell->text.begin());
  }
}

std::string take_live_row(Row const& row, flight::LiveAllocation& allocation) {
  constexpr std::size_t kColumns = 13;
  if (row.count() != kColumns) return wrong_count(row, kColumns);
  Cells cells{row};
  allocation.address = cells.number(0);
  allocation.bytes = cells.number(1);
  allocation.tag = cells.id(2);
  allocation.ledger = cells.id(3);
  allocation.site = cells.id(4);
  allocation.thread = cells.id(5);
  allocation.state = cells.word<flight::SlotState>(6, kSlotStateWords);
  allocation.alignment = std::uint64_t{1} << (cells.log2(7) & 63U);
  allocation.stream = cells.number(8);
  allocation.ticks = cells.number(9);
  allocation.operation = cells.number(10);
  allocation.slot = cells.id(11);
  allocation.generation = cells.number(12);
  return cells.take_problem();
}

std::string take_event_row(Row const& row, flight::Event& event) {
  if (row.count() != Row::kCells) return wrong_count(row, Row::kCells);
  Cells cells{row};
  static_cast<void>(cells.number(0));  // ns since the start: the clock says it again
  event.ticks = cells.number(1);
  event.lane = cells.id(2);
  event.number = cells.number(3);
  const std::uint64_t kind = kind_in(row, cells);
  event.kind = static_cast<EventKind>(kind);
  event.ring = kind < static_cast<std::uint64_t>(EventKind::refusal) ? flight::Ring::main : flight::Ring::journal;
  const std::uint64_t flags = cells.number(5, 0x1FF);
  event.uncommitted = (flags & 0x100U) != 0;
  event.words[0] = (kind << 56) | ((flags & 0xFFU) << 48) | (event.number & flight::kRecordNumberMask);
  event.words[1] = event.ticks;
  event.words[7] = (cells.number(10, 0xFFFF'FFFF) << 32) | cells.number(9, 0xFFFF'FFFF);
  constexpr std::size_t kFirst = 11;
  if (row[kFirst + 1].type == Row::Type::hex) {
    for (std::size_t word = 2; word < 8; ++word) {
      // The last one is what its two columns say already.
      const std::uint64_t value = cells.number(kFirst + word - 2);
      if (word == 7 && value != event.words[7]) cells.complain(kFirst + 5, "duration and thread as in their columns");
      event.words[word] = value;
    }
    return cells.take_problem();
  }
  event.words[2] = cells.number(kFirst);
  event.words[3] = cells.number(kFirst + 1, flight::kRequestedMask) | (cells.log2(kFirst + 2) << 48);
  event.words[4] = cells.number(kFirst + 3, flight::kBytesMask) | (cells.number(kFirst + 4, 0xF'FFFF) << flight::kBytesBits);
  event.words[5] = (cells.number_or_zero(8, 15) << 52) | (cells.number_or_zero(6, 0xFFF) << 16) | cells.number_or_zero(7, 0xFFFF);
  event.words[6] = cells.number(kFirst + 5, 0xFFFF'FFFF);
  return cells.take_problem();
}

}  // namespace headroom::dump
