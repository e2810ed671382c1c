#include "device/device_limit.hpp"

#include <algorithm>

#include <headroom/byte_size.hpp>

namespace headroom::device {

MemoryBudget limit_in_force(MemoryBudget budget, DeviceBudgetOptions const& options, std::uint64_t total,
                            std::uint64_t outside) noexcept {
  const std::uint64_t context = options.include_context ? outside : 0;
  const std::uint64_t asked = std::min(budget.limit_bytes().value_or(kLargestRequest), kLargestRequest);
  const bool has_line = options.keep_free_bytes != 0;
  if (budget.enforces() || (budget.is_unlimited() && has_line)) {
    std::uint64_t limit = std::min(asked, total);
    if (budget.enforces()) limit = less(limit, context);
    if (has_line) limit = std::min(limit, less(less(total, outside), options.keep_free_bytes));
    return MemoryBudget::with_limit(limit);
  }
  return budget.is_unlimited() ? budget : MemoryBudget::observe(less(asked, context));
}

std::optional<Error> unusable(DeviceBudgetOptions const& options, MemoryInfo const& memory) {
  if (options == DeviceBudgetOptions{}) return std::nullopt;
  if (!memory.total || !memory.free) {
    return make_error(ErrorKind::unsupported, Layer::device_account,
                      "a budget with " + options_text(options) +
                          " needs a device that tells its total and free memory; found one that does not");
  }
  if (options.keep_free_bytes >= *memory.total) {
    return make_error(ErrorKind::invalid_argument, Layer::device_account,
                      "keep_free_bytes is " + format_bytes_exact(options.keep_free_bytes) +
                          ", expected less than the device has, " + format_bytes_exact(*memory.total));
  }
  return std::nullopt;
}

std::optional<Error> nothing_left(GlobalDeviceBudget::Terms const& terms, std::uint64_t total, std::uint64_t outside) {
  const auto limit = limit_in_force(terms.budget, terms.options, total, outside).limit_bytes();
  // 0 allows nothing on purpose.
  if (!limit || *limit != 0 || terms.budget.limit_bytes() == 0) return std::nullopt;
  const std::uint64_t inside = less(total, outside);
  std::string message = "nothing could be allocated: the device uses " + format_bytes_exact(outside) + " of " +
                        format_bytes_exact(total) + " outside of the account; found the budget " + terms.budget.to_string() +
                        " with " + options_text(terms.options) + ", expected ";
  message += terms.options.keep_free_bytes >= inside ? "less than " + format_bytes_exact(inside) + " to be kept free"
                                                     : "a budget above " + format_bytes_exact(outside);
  Error error = make_error(ErrorKind::invalid_argument, Layer::device_account, std::move(message));
  error.device_total = total;
  error.device_outside = outside;
  return error;
}

std::string options_text(DeviceBudgetOptions const& options) {
  std::string text;
  if (options.keep_free_bytes != 0) text = format_bytes_exact(options.keep_free_bytes) + " kept free";
  if (options.include_context) text += text.empty() ? "the context included" : ", the context included";
  return text;
}

}  // namespace headroom::device
