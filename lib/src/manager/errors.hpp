// The errors of a manager: figures from its ledger, holders from its tags, and the sentences for what no figure says. Where a request
// is refused nothing throws: without host memory an error has its kind, layer and figures, and no sentence.
#pragma once

#include <cstdint>
#include <string>

#include <headroom/device.hpp>
#include <headroom/error.hpp>

#include "ledger/figures.hpp"
#include "ledger/ledger.hpp"

namespace headroom::manager {

using ledger::add_figures;
using ledger::add_holders;
/// What a look at the ledger would say now, for refusals that no claim preceded.
[[nodiscard]] ledger::ClaimResult present_claim(ledger::Ledger const& ledger) noexcept;
/// A refusal by a layer below: the device's figures, and those of a budget there instead of our own.
void take_figures(ledger::Refusal& refusal, Error const& error) noexcept;
[[nodiscard]] Error forked_child_error() noexcept;
/// Memory was wanted and there was none: a budget's or the device's. Everything else cannot be mended by freeing.
[[nodiscard]] constexpr bool is_shortage(Error const& error) noexcept {
  return error.kind == ErrorKind::over_budget || error.kind == ErrorKind::device_out_of_memory;
}
[[nodiscard]] std::string other_device_message(Device const& of_runtime, Device const& of_manager);
[[nodiscard]] std::string no_runtime_message() noexcept;
[[nodiscard]] std::string overflow_message(std::uint64_t count, std::uint64_t element_bytes) noexcept;
[[nodiscard]] std::string too_large_message(std::uint64_t bytes) noexcept;
[[nodiscard]] std::string alignment_message(std::uint64_t alignment) noexcept;

}  // namespace headroom::manager
