// headroom: Ctrl-C and SIGTERM end a replay in good order.
#pragma once

#include <atomic>

namespace headroom::command {

/// True once the first SIGINT or SIGTERM has come, or request_stop() was called. A second signal ends the process as usual.
[[nodiscard]] std::atomic<bool> const& stop_flag() noexcept;
void request_stop() noexcept;
/// The signal that came, 0 = none.
[[nodiscard]] int stop_signal() noexcept;

/// From here on those two signals only set the flag.
void catch_stop_signals() noexcept;

}  // namespace headroom::command
