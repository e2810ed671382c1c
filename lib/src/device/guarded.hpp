// headroom: calls into resources that users wrote. No exception leaves the library, whatever they throw.
#pragma once

#include <exception>
#include <string>

#include <headroom/error.hpp>

namespace headroom::device {

/// What `call` returns, a Result; an exception becomes an error of kind driver.
template <class Call>
[[nodiscard]] auto guarded(Call const& call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (std::exception const& thrown) {
    return fail(ErrorKind::driver, Layer::resource, std::string("the resource threw: ") + thrown.what());
  } catch (...) {
    return fail(ErrorKind::driver, Layer::resource, "the resource threw something that is no std::exception");
  }
}

}  // namespace headroom::device
