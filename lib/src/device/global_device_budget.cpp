// The decorator on an account: claim first, admit after, and every way back.
#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include <headroom/byte_size.hpp>
#include <headroom/device_account.hpp>

#include "base/clock.hpp"
#include "device/account_core.hpp"
#include "device/account_scope.hpp"
#include "device/device_account_cell.hpp"
#include "device/request_checks.hpp"
#include "flight/tag_names.hpp"
#include "ledger/figures.hpp"

namespace headroom {
namespace {

using device::AccountCore;
using device::AccountScope;
using flight::InFlight;
using flight::LaneSection;
using ledger::ClaimOutcome;
using ledger::ClaimResult;
using ledger::Ledger;

// What is known of a request from its start on.
struct Asked {
  AccountCore& core;
  flight::ThreadState& thread;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 0;
  std::uint64_t start_ticks = 0;
  flight::TagPlace tag{};
};

// Blocks and requests come from anyone; a number that is no tag's counts as untagged.
flight::TagPlace place_of(Ledger& ledger, std::uint16_t tag) noexcept {
  return ledger.tag_place(tag < flight::tag_names_used() ? tag : flight::kUntagged);
}

ledger::Refusal refusal_of(Asked const& asked, ErrorKind kind, Layer layer, ClaimResult const& claim) noexcept {
  return {.kind = kind,
          .layer = layer,
          .requested = asked.bytes,
          .alignment = asked.alignment,
          .claimed = claim.claimed_before,
          .limit_word = claim.limit_word,
          .device_free = {},
          .start_ticks = asked.start_ticks,
          .tag = asked.tag,
          .typed = false};
}

ClaimResult look(Ledger const& ledger) noexcept {
  return {.outcome = ClaimOutcome::refused, .claimed_before = ledger.words().claimed, .limit_word = ledger.limit_word()};
}

Error forked_child() {
  return make_error(ErrorKind::unsupported, Layer::device_account,
                    "this process is a forked child: the device and the books belong to its parent; exec, or allocate there");
}

// Refused here: booked, with all figures.
Error refuse(Asked const& asked, ErrorKind kind, ClaimResult const& claim, std::string message) {
  Ledger& ledger = asked.core.ledger();
  {
    const LaneSection section{asked.thread};
    ledger.book_refusal(section, refusal_of(asked, kind, Layer::device_account, claim));
  }
  Error error = make_error(kind, Layer::device_account, std::move(message));
  error.requested = asked.bytes;
  ledger::add_figures(error, ledger, claim);
  ledger::add_holders(error, ledger);
  return error;
}

std::string shortage(AccountCore const& core, std::optional<Error> const& reap_failure) {
  std::string text = core.name();
  if (const auto pending = core.pending_free_bytes(); pending != 0) text += ", " + format_bytes(pending) + " in pending frees";
  if (reap_failure) text += ", and finishing them failed: " + reap_failure->to_string();
  return text;
}

std::string beyond_ledger(std::uint64_t bytes) {
  return std::to_string(bytes) + " bytes cannot be held: an account counts up to " + std::to_string(kLargestRequest) +
         " (16 TiB - 1) in all";
}

// Takes `asked.bytes` from the budget by `claim`; the error, booked, if they cannot be had.
std::optional<Error> take(Asked const& asked, AccountCore::Claim claim, ClaimResult& result) {
  Ledger& ledger = asked.core.ledger();
  result = (ledger.*claim)(asked.bytes);
  std::optional<Error> reap_failure;
  if (result.outcome == ClaimOutcome::refused) {
    auto attempt = asked.core.claim_after_reaping(asked.bytes, claim);
    result = attempt.claim;
    reap_failure = std::move(attempt.reap_failure);
  }
  if (result.outcome == ClaimOutcome::refused) {
    return refuse(asked, ErrorKind::over_budget, result, shortage(asked.core, reap_failure));
  }
  if (result.outcome == ClaimOutcome::overflow) return refuse(asked, ErrorKind::overflow, result, beyond_ledger(asked.bytes));
  return std::nullopt;
}

// The stack below said no: its error stays as it is, but for figures that it lacks.
Error refuse_below(Asked const& asked, bool reserved, Error error) {
  Ledger& ledger = asked.core.ledger();
  const LaneSection section{asked.thread};
  if (reserved) {
    ledger.unspend(asked.bytes);
  } else {
    ledger.unclaim(asked.bytes, section);
  }
  auto refusal = refusal_of(asked, error.kind, error.layer, look(ledger));
  refusal.device_free = error.device_free;
  refusal.device_code = error.device_code;
  ledger.book_refusal(section, refusal);
  if (!error.requested) error.requested = asked.bytes;
  return error;
}

}  // namespace

Result<std::shared_ptr<GlobalDeviceBudget>> GlobalDeviceBudget::create(Device const& device, MemoryBudget budget) {
  return create(device, budget, device.shared_resource());
}

Result<std::shared_ptr<GlobalDeviceBudget>> GlobalDeviceBudget::create(Device const& device, MemoryBudget budget,
                                                                       std::shared_ptr<DeviceResource> inner) {
  auto checked = InnerResource::check(std::move(inner), kName);
  if (!checked) return tl::make_unexpected(std::move(checked.error()));
  auto const& below = checked->resource();
  if (auto const* const present = device::budget_in(*below)) {
    return fail(ErrorKind::invalid_argument, Layer::request,
                "'" + std::string(kName) + "' cannot stand here: found another one below it, on '" + present->account().name() +
                    "' with the budget " + present->account().budget().to_string() + ", expected one in a stack");
  }
  DeviceResource const& ends_in = bottom_of(*below);
  DeviceResource const& expected = bottom_of(device.resource());
  const bool same_uuid = !expected.device_uuid().empty() && expected.device_uuid() == ends_in.device_uuid();
  if (&ends_in != &expected && !same_uuid) {
    return fail(ErrorKind::invalid_argument, Layer::request,
                "the stack below ends in a resource '" + std::string(ends_in.name()) +
                    "' of another device, expected the one of '" + device.name() + "'");
  }
  auto core = AccountCore::join(device, budget, below);
  if (!core) return tl::make_unexpected(std::move(core.error()));
  DeviceAccount account{**core, below};
  return std::make_shared<GlobalDeviceBudget>(*std::move(checked), std::move(account));
}

GlobalDeviceBudget::GlobalDeviceBudget(InnerResource inner, DeviceAccount account) noexcept
    : ResourceDecorator(std::move(inner)), account_(std::move(account)), reports_returns_(ResourceDecorator::reports_returns()) {}

// No exception leaves the library, and none may pass the books by.
Result<Block> GlobalDeviceBudget::ask_below(AllocRequest const& request) noexcept {
  try {
    return ResourceDecorator::allocate(request);
  } catch (std::exception const& thrown) {
    return fail(ErrorKind::driver, Layer::resource, std::string{"the resource threw: "} + thrown.what());
  } catch (...) {
    return fail(ErrorKind::driver, Layer::resource, "the resource threw something that is no std::exception");
  }
}

Result<void> GlobalDeviceBudget::free_below(Block const& block) noexcept {
  try {
    return ResourceDecorator::deallocate(block);
  } catch (std::exception const& thrown) {
    return fail(ErrorKind::driver, Layer::resource, std::string{"the resource threw: "} + thrown.what());
  } catch (...) {
    return fail(ErrorKind::driver, Layer::resource, "the resource threw something that is no std::exception");
  }
}

Result<Block> GlobalDeviceBudget::allocate(AllocRequest const& request) {
  if (flight::in_forked_child()) return tl::make_unexpected(forked_child());
  AllocRequest below = request;
  below.reserved = false;
  if (request.bytes == 0) return ask_below(below);
  AccountCore& core = *account_.core_;
  Ledger& ledger = core.ledger();
  flight::ThreadState& thread = flight::this_thread();
  const Asked asked{.core = core,
                    .thread = thread,
                    .bytes = request.bytes,
                    .alignment = request.alignment,
                    .start_ticks = ticks_now(),
                    .tag = place_of(ledger, request.tag)};
  if (!acceptable(request)) [[unlikely]] {
    auto wrong = wrong_request(request);
    const LaneSection section{thread};
    ledger.book_refusal(section, refusal_of(asked, wrong.value().kind, wrong.value().layer, look(ledger)));
    return wrong;
  }

  const AccountScope scope{thread, ledger, request.reserved ? InFlight::spending : InFlight::allocating, request.bytes};
  ClaimResult claim;
  if (request.reserved) {
    claim = look(ledger);
    if (!ledger.try_spend(request.bytes)) {
      return tl::make_unexpected(refuse(asked, ErrorKind::invalid_argument, claim,
                                        "the request says that its bytes are reserved; found " +
                                            std::to_string(ledger.cell().unspent.load(std::memory_order_relaxed)) +
                                            " unspent bytes on " + core.name() + ", expected at least " +
                                            std::to_string(request.bytes)));
    }
  } else {
    if (auto error = take(asked, &Ledger::claim, claim)) [[unlikely]]
      return tl::make_unexpected(*std::move(error));
    const LaneSection section{thread};
    ledger.judge_pressure(section);
    if (claim.outcome == ClaimOutcome::observed) [[unlikely]] {
      auto observed = refusal_of(asked, ErrorKind::over_budget, Layer::device_account, claim);
      observed.observed = true;
      ledger.book_refusal(section, observed);
    }
  }

  Result<Block> block = ask_below(below);
  if (!block) [[unlikely]]
    return tl::make_unexpected(refuse_below(asked, request.reserved, std::move(block.error())));
  const std::uint64_t alloc_word = ledger.admit(request.bytes);
  const LaneSection section{thread};
  ledger.book_account_allocation(section, {.bytes = request.bytes,
                                           .alignment = block->alignment,
                                           .address = reinterpret_cast<std::uintptr_t>(block->pointer),
                                           .stream = block->stream.value,
                                           .start_ticks = asked.start_ticks,
                                           .alloc_word = alloc_word,
                                           .claimed_before = claim.claimed_before,
                                           .tag = asked.tag});
  return block;
}

Result<void> GlobalDeviceBudget::deallocate(Block const& block) {
  if (flight::in_forked_child()) return tl::make_unexpected(forked_child());
  if (block.bytes == 0) return free_below(block);
  if (block.bytes > kLargestRequest) {
    return fail(ErrorKind::wrong_size, Layer::device_account,
                "a block of " + std::to_string(block.bytes) + " bytes was never handed out: the largest has " +
                    std::to_string(kLargestRequest));
  }
  AccountCore& core = *account_.core_;
  Ledger& ledger = core.ledger();
  flight::ThreadState& thread = flight::this_thread();
  const std::uint64_t start_ticks = ticks_now();
  const AccountScope scope{thread, ledger, InFlight::freeing, block.bytes};
  Block below = block;
  below.returns_to = reports_returns_ ? &core : nullptr;
  const flight::TagPlace tag = place_of(ledger, block.tag);

  core.begin_free(block.bytes);
  Result<void> freed = free_below(below);
  if (!freed) [[unlikely]] {
    core.undo_free(block.bytes);
    const LaneSection section{thread};
    ledger.book_free_failure(section,
                             {.bytes = block.bytes,
                              .alignment = block.alignment,
                              .address = reinterpret_cast<std::uintptr_t>(block.pointer),
                              .stream = block.stream.value,
                              .start_ticks = start_ticks,
                              .end_ticks = ticks_now(),
                              .alloc_word = ledger.cell().alloc.load(std::memory_order_relaxed),
                              .tag = tag,
                              .slot = 0},
                             freed.error().kind, freed.error().layer);
    return freed;
  }
  {
    const LaneSection section{thread};
    ledger.book_account_free(section, tag, block.bytes);
  }
  if (!reports_returns_) core.returned(block.bytes);
  return freed;
}

std::optional<BudgetSnapshot> GlobalDeviceBudget::budget_snapshot() const noexcept {
  auto const& ledger = account_.core_->ledger();
  const MemoryBudget budget = ledger.budget();
  if (!budget.enforces()) return std::nullopt;
  return BudgetSnapshot{.limit_bytes = budget.limit_bytes().value_or(0), .claimed_bytes = ledger.words().claimed};
}

Result<void> GlobalDeviceBudget::reserve(std::uint64_t bytes) {
  if (flight::in_forked_child()) return tl::make_unexpected(forked_child());
  AccountCore& core = *account_.core_;
  Ledger& ledger = core.ledger();
  if (const MemoryBudget budget = ledger.budget(); !budget.enforces()) {
    return fail(ErrorKind::unsupported, Layer::device_account,
                "nothing can be reserved on " + core.name() + ": found the budget '" + budget.to_string() +
                    "', expected one with a limit that is enforced");
  }
  flight::ThreadState& thread = flight::this_thread();
  const Asked asked{
      .core = core, .thread = thread, .bytes = bytes, .start_ticks = ticks_now(), .tag = place_of(ledger, flight::kUntagged)};
  const AccountScope scope{thread, ledger, InFlight::reserving, std::min(bytes, kLargestRequest)};
  ClaimResult claim;
  if (auto error = take(asked, &Ledger::reserve, claim)) return tl::make_unexpected(*std::move(error));
  const LaneSection section{thread};
  ledger.book_reservation(section, bytes);
  return success();
}

void GlobalDeviceBudget::unreserve(std::uint64_t bytes) noexcept {
  if (flight::in_forked_child()) return;
  Ledger& ledger = account_.core_->ledger();
  auto const& cell = ledger.cell();
  if (cell.unspent_reservations.load(std::memory_order_relaxed) == 0 || cell.unspent.load(std::memory_order_acquire) < bytes)
    return;
  flight::ThreadState& thread = flight::this_thread();
  const AccountScope scope{thread, ledger, InFlight::dropping, bytes};
  const LaneSection section{thread};
  ledger.drop_reservation(section, bytes);
}

std::string_view GlobalDeviceBudget::name() const noexcept { return kName; }

}  // namespace headroom
