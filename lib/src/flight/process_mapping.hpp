// headroom: the books of this very process, for FlightView::of_this_process.
#pragma once

#include <cstddef>
#include <span>

namespace headroom::flight {

/// The whole flight memory of this process, file or anonymous, 64-byte aligned; empty until its magic was written. It stays
/// mapped as long as the process lives. Defined by the recorder. From any thread.
[[nodiscard]] std::span<const std::byte> process_mapping() noexcept;

}  // namespace headroom::flight
