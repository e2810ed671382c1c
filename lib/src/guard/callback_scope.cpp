#include "guard/callback_scope.hpp"

namespace headroom::guard {
namespace {

// This thread's only. A hook may free, which calls a listener, which may ask for memory: they nest.
thread_local constinit std::uint32_t hooks = 0;
thread_local constinit std::uint32_t callbacks = 0;

}  // namespace

bool inside_hook() noexcept { return hooks != 0; }
bool inside_callback() noexcept { return callbacks != 0; }

CallbackScope::CallbackScope(Callback kind) noexcept : kind_{kind} {
  ++callbacks;
  if (kind_ == Callback::hook) ++hooks;
}

CallbackScope::~CallbackScope() {
  --callbacks;
  if (kind_ == Callback::hook) --hooks;
}

}  // namespace headroom::guard
