// What a record of the journal says, as names and values: for formats that show them as they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dump/json_stream.hpp"
#include "dump/timeline.hpp"

namespace headroom::dump {

struct NoteFigure {
  enum class Type : std::uint8_t { number, signed_number, address, word, flag };
  std::string_view name;
  Type type = Type::number;
  std::uint64_t value = 0;  ///< a signed number in two's complement
  std::string_view word{};  ///< of our own
};

/// Those that the record has; figures of a second half that was lost are absent. `into` is emptied first, and used again, to spare the heap.
void figures_of(TimelineNote const& note, std::vector<NoteFigure>& into);

/// One line for people: "refused: device_out_of_memory", "hook cache", "pressure none to high". May hold bytes from outside.
[[nodiscard]] std::string title_of(TimelineNote const& note);

/// As members of the object that is open.
void write_figures(JsonStream& json, std::vector<NoteFigure> const& figures) noexcept;

}  // namespace headroom::dump
