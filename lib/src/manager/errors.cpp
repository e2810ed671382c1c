#include "manager/errors.hpp"

#include "base/thrown_error.hpp"

namespace headroom::manager {

ledger::ClaimResult present_claim(ledger::Ledger const& ledger) noexcept {
  return {.outcome = ledger::ClaimOutcome::refused, .claimed_before = ledger.words().claimed, .limit_word = ledger.limit_word()};
}

void take_figures(ledger::Refusal& refusal, Error const& error) noexcept {
  refusal.device_free = error.device_free;
  refusal.device_code = error.device_code;
  if (!error.limit || !error.current) return;
  refusal.claimed = *error.current;
  refusal.limit_word = ledger::pack_limit(*error.limit, true, false);
}

Error forked_child_error() noexcept {
  return make_error(ErrorKind::unsupported, Layer::manager, words([] {
                      return std::string{
                          "this process is a forked child: the device and the books belong to its parent; "
                          "exec, or allocate there"};
                    }));
}

std::string other_device_message(Device const& of_runtime, Device const& of_manager) {
  const auto named = [](Device const& device) { return "'" + device.name() + "', ordinal " + std::to_string(device.ordinal()); };
  return "the runtime is of the device " + named(of_runtime) + ", the manager of " + named(of_manager) +
         (of_runtime.ordinal() == of_manager.ordinal() ? ", which is another object" : "");
}

std::string no_runtime_message() noexcept {
  return words([] {
    return std::string{"raw memory comes through a runtime, and this manager has none: make it with_runtime or take an overlay"};
  });
}

std::string overflow_message(std::uint64_t count, std::uint64_t element_bytes) noexcept {
  return words(
      [&] { return std::to_string(count) + " elements of " + std::to_string(element_bytes) + " bytes do not fit 64 bits"; });
}

std::string too_large_message(std::uint64_t bytes) noexcept {
  return words([&] {
    return std::to_string(bytes) + " bytes cannot be held: a ledger counts up to " + std::to_string(flight::kBytesMask) +
           " (16 TiB - 1) in all";
  });
}

std::string alignment_message(std::uint64_t alignment) noexcept {
  return words([&] { return "alignment " + std::to_string(alignment) + " is no power of two"; });
}

}  // namespace headroom::manager
