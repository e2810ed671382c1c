// headroom: what becomes of a request by who sends it.
#pragma once

#include <cstdint>

namespace headroom::exporter {

enum class Access : std::uint8_t {
  granted,
  denied,
  busy,  ///< nobody can tell at the moment: as many passwords as are looked at a time are being looked at
};

}  // namespace headroom::exporter
