// One try to serve a request: memory, then its contents. A try that fails leaves nothing behind.
#pragma once

#include <optional>
#include <source_location>
#include <string>
#include <utility>

#include <headroom/guard.hpp>

#include "base/thrown_error.hpp"
#include "manager/route.hpp"

namespace headroom::guard {

/// The memory could not be filled: it was given back, and the refusal is booked unless it is a shortage met again. The error has the
/// figures of a refusal.
[[nodiscard]] Error give_back_unfilled(manager::Allocation& allocation, Error error, bool again) noexcept;

/// Zeroes or copies. No exception leaves the library, whatever a user's resource throws.
[[nodiscard]] Result<void> fill(manager::Allocation const& allocation, Request const& request) noexcept;

/// One more thing to say about an error; nothing is said when the system has no memory for it.
template <class Make>
void add_clause(Error& error, Make const& make) noexcept {
  std::string longer = words([&] { return (error.message.empty() ? std::string{} : error.message + "; ") + make(); });
  if (!longer.empty()) error.message = std::move(longer);
}

/// `source` is the route, for memory under the budget, or a token, for memory that was reserved.
template <class Source>
[[nodiscard]] std::optional<Error> attempt(Source& source, Request const& request, manager::AllocArguments const& arguments,
                                           std::source_location const& site, manager::Allocation& allocation) {
  std::optional<Error> error = manager::allocate(source, arguments, site, allocation);
  if (error) [[unlikely]]
    return error;
  if (allocation.bytes == 0) return error;
  if (Result<void> filled = fill(allocation, request); !filled) [[unlikely]] {
    error = give_back_unfilled(allocation, std::move(filled.error()), arguments.again);
  }
  return error;
}

}  // namespace headroom::guard
