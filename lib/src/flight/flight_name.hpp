// headroom: what the name of a flight file says.
#pragma once

#include <optional>
#include <string_view>

#include <headroom/flight_reader.hpp>

namespace headroom::flight {

/// `<program>.<pid>.<run>.flight`, read from the right since a program's name may hold dots. A name that begins with a dot is a
/// file that its writer has not finished. Nothing when it is no flight file's; `path` stays empty.
[[nodiscard]] std::optional<FoundFlight> parse_flight_name(std::string_view name);

}  // namespace headroom::flight
