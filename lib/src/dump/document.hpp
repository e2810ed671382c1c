// A post-mortem as parsed: the state as a tree, and the two long tables row by row, straight into the structs of readers.
//
// The parser is nlohmann's, driven by events, so that a table of 139,000 rows is never a tree. Where the text ends too early everything
// that was whole is kept; an element of an array that was begun and not ended is dropped, since what it lacks would look like zeros.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <headroom/error.hpp>
#include <headroom/flight_reader.hpp>

namespace headroom::dump {

struct Document {
  nlohmann::json state;
  std::vector<flight::LiveAllocation> live;
  std::vector<flight::Event> events;
  bool truncated = false;
};

/// Errors: parse (with the byte).
[[nodiscard]] Result<Document> parse_document(std::string_view text, std::string_view name);

}  // namespace headroom::dump
