// headroom: calls into resources that users wrote. No exception leaves the library, whatever they throw.
#pragma once

#include <exception>

#include <headroom/error.hpp>

#include "base/thrown_error.hpp"

namespace headroom::device {

/// What `call` returns, a Result; an exception becomes an error of kind driver.
template <class Call>
[[nodiscard]] auto guarded(Call const& call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (std::exception const& thrown) {
    return tl::unexpected<Error>{thrown_error(thrown.what())};
  } catch (...) {
    return tl::unexpected<Error>{thrown_error(nullptr)};
  }
}

}  // namespace headroom::device
