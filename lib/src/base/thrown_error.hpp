// Words for errors where the heap may be empty.
//
// An error's kind, layer and figures need no memory; its message does. Where an error is made for want of memory, or in a function that
// must not throw, the message is what may be missing: it is never the reason for another exception.
#pragma once

#include <string>

#include <headroom/error.hpp>

namespace headroom {

/// The sentence that `make` returns; empty when the system has no memory for it.
template <class Make>
[[nodiscard]] std::string words(Make const& make) noexcept {
  try {
    return make();
  } catch (...) {
    return {};
  }
}

/// A user's code threw; `what` may be null: it threw no std::exception.
[[nodiscard]] inline Error thrown_error(char const* what) noexcept {
  return make_error(ErrorKind::driver, Layer::resource, words([&] {
                      return what != nullptr ? std::string{"the resource threw: "} + what
                                             : std::string{"the resource threw something that is no std::exception"};
                    }));
}

}  // namespace headroom
