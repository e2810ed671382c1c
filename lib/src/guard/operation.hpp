// An operation through a guard's handle: whatever runs inside it, the guard lives until it is over.
//
// Hooks, listeners and callbacks run inside operations, on their thread, and may drop the very handle that the operation came by, the
// last one included. The handle then leaves its share of the guard to the operation, which drops it at its own end. A share, not a
// delay of the end: other handles may go on other threads meanwhile.
//
// Thread safety: of one thread each, which alone reaches its chain of operations. Cost: two stores and a look on the way out; no count
// of shares is touched as long as no handle goes.
#pragma once

#include <memory>
#include <utility>

namespace headroom::guard {

class Core;

class [[nodiscard]] Operation {
public:
  /// `core` is that of a handle which the caller has now.
  explicit Operation(Core& core) noexcept : core_{&core}, outer_{innermost} { innermost = this; }
  // What was kept goes after this: what the end of a guard calls is no longer inside the operation.
  ~Operation() { innermost = outer_; }
  Operation(Operation const&) = delete;
  Operation& operator=(Operation const&) = delete;

  /// A handle goes on this thread. The outermost operation of its guard takes its share, unless it has one; there is nothing to take
  /// outside of operations.
  static void leave_share(std::shared_ptr<Core>& handle) noexcept {
    Operation* outermost = nullptr;
    for (Operation* operation = innermost; operation != nullptr; operation = operation->outer_) {
      if (operation->core_ == handle.get()) outermost = operation;
    }
    if (outermost != nullptr && outermost->kept_ == nullptr) outermost->kept_ = std::move(handle);
  }

private:
  static inline thread_local constinit Operation* innermost = nullptr;  // this thread's only

  Core* core_;
  Operation* outer_;
  std::shared_ptr<Core> kept_;
};

}  // namespace headroom::guard
