// Whether this thread is inside one of the program's own callbacks. Inside a hook no further hooks run; inside any callback a
// removal does not wait for runs elsewhere, which may be waiting for this one.
#pragma once

#include <cstdint>

namespace headroom::guard {

enum class Callback : std::uint8_t { hook, listener, checkpoint };

/// This thread is inside a hook, of whichever guard.
[[nodiscard]] bool inside_hook() noexcept;
/// … inside a hook, a listener or a checkpoint.
[[nodiscard]] bool inside_callback() noexcept;

class CallbackScope {
public:
  explicit CallbackScope(Callback kind) noexcept;
  ~CallbackScope();
  CallbackScope(CallbackScope const&) = delete;
  CallbackScope& operator=(CallbackScope const&) = delete;

private:
  Callback kind_;
};

}  // namespace headroom::guard
