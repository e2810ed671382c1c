// The decorator on an account: claim first, admit after, and every way back.
#include <algorithm>
#include <string>
#include <utility>

#include <headroom/device_account.hpp>

#include "base/clock.hpp"
#include "device/account_core.hpp"
#include "device/account_request.hpp"
#include "device/account_scope.hpp"
#include "device/device_account_cell.hpp"
#include "device/device_figures.hpp"
#include "device/device_limit.hpp"
#include "device/guarded.hpp"
#include "device/patience.hpp"
#include "device/request_checks.hpp"
#include "device/second_try.hpp"
#include "flight/tag_names.hpp"

namespace headroom {
namespace {

using device::AccountCore;
using device::AccountRequest;
using device::AccountScope;
using device::Line;
using flight::InFlight;
using flight::LaneSection;
using ledger::ClaimOutcome;
using ledger::ClaimResult;
using ledger::Ledger;

Error forked_child() {
  return make_error(ErrorKind::unsupported, Layer::device_account,
                    "this process is a forked child: the device and the books belong to its parent; exec, or allocate there");
}

std::string other_options(DeviceAccount const& account, ledger::DeviceTerms::Agreed const& present,
                          DeviceBudgetOptions const& asked) {
  const auto words = [](DeviceBudgetOptions const& options) {
    const std::string text = device::options_text(options);
    return text.empty() ? std::string{"no options"} : text;
  };
  return "the account '" + account.name() + "' has " +
         words({.keep_free_bytes = present.keep_free, .include_context = present.include_context}) +
         " from its first user; found " + words(asked) + ", expected the same, since all stacks of one device share it";
}

}  // namespace

// Asks the stack below, in an account that keeps memory free only for what leaves enough of it.
class GlobalDeviceBudget::AskBelow final : public device::SecondTry {
public:
  AskBelow(GlobalDeviceBudget& budget, AccountRequest const& asked, AllocRequest const& below) noexcept
      : budget_(budget), asked_(asked), below_(below) {}

  [[nodiscard]] Result<Block> ask() noexcept override {
    if (budget_.terms_.options.keep_free_bytes == 0) [[likely]]
      return budget_.ask_below(below_);
    return ask_above_line();
  }
  void trimmed(std::uint64_t bytes) noexcept override {
    const LaneSection section{asked_.thread};
    asked_.core.ledger().book_trim(section, bytes, asked_.bytes, asked_.alignment, asked_.tag);
  }
  [[nodiscard]] std::optional<std::uint64_t> free_now() const noexcept override {
    auto free = budget_.inner()->memory_info().free;
    if (free) *free = device::less(*free, budget_.terms_.options.keep_free_bytes);
    return free;
  }
  /// Of the last ask(), when it ended here.
  [[nodiscard]] std::optional<Line> const& stopped_at() const noexcept { return stopped_at_; }

private:
  [[nodiscard]] Result<Block> ask_above_line() noexcept {
    stopped_at_.reset();
    DeviceResource const& inner = *budget_.inner();
    const std::uint64_t footprint = std::max(inner.footprint(below_.bytes), below_.bytes);
    device::Patience patience;
    for (;;) {
      {
        const device::Taking taking{asked_.core.ledger().device_terms(), footprint};
        const auto free = inner.memory_info().free;
        if (!free) {
          return fail(ErrorKind::driver, Layer::device_account,
                      "the device does not tell its free memory any more, of which " +
                          device::options_text(budget_.terms_.options) + " are due");
        }
        const std::uint64_t room = device::less(*free, budget_.terms_.options.keep_free_bytes);
        if (taking.sum() <= room) return budget_.ask_below(below_);
        // Too much by itself: like a device without room, so that room is made as for one.
        if (footprint > room) return stop({.room = room, .footprint = footprint}, ErrorKind::device_out_of_memory);
        // Together with others on their way, who may take less than they said, or nothing. Nothing but time helps against them.
        const std::uint64_t left = device::less(room, taking.sum() - footprint);
        if (patience.overtaken()) return stop({.room = left, .footprint = footprint}, ErrorKind::over_budget);
      }
      patience.pause();
    }
  }
  [[nodiscard]] Result<Block> stop(Line line, ErrorKind kind) {
    stopped_at_ = line;
    Error error = make_error(kind, Layer::device_account, {});
    error.device_free = line.room;
    return tl::make_unexpected(std::move(error));
  }

  GlobalDeviceBudget& budget_;
  AccountRequest const& asked_;
  AllocRequest const& below_;
  std::optional<Line> stopped_at_;
};

Result<std::shared_ptr<GlobalDeviceBudget>> GlobalDeviceBudget::create(Device const& device, MemoryBudget budget,
                                                                       DeviceBudgetOptions const& options) {
  return create(device, budget, device.shared_resource(), options);
}

Result<std::shared_ptr<GlobalDeviceBudget>> GlobalDeviceBudget::create(Device const& device, MemoryBudget budget,
                                                                       std::shared_ptr<DeviceResource> inner,
                                                                       DeviceBudgetOptions const& options) {
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
  const MemoryInfo memory = below->memory_info();
  if (auto error = device::unusable(options, memory)) return tl::make_unexpected(*std::move(error));
  auto core = AccountCore::join(device, budget, below);
  if (!core) return tl::make_unexpected(std::move(core.error()));
  DeviceAccount account{**core, below};  // from here on an error gives the seat back
  Ledger& ledger = (*core)->ledger();
  ledger.cell().physical_device.store(device::physical_device(*below), std::memory_order_relaxed);
  const Terms terms{.budget = budget, .options = options};
  const ledger::DeviceTerms::Agreed wanted{.keep_free = options.keep_free_bytes, .include_context = options.include_context};
  const auto agreed = ledger.device_terms().agree(wanted);
  if (agreed.terms != wanted) {
    return fail(ErrorKind::invalid_argument, Layer::device_account, other_options(account, agreed.terms, options));
  }
  if (agreed.first && options != DeviceBudgetOptions{}) {
    const auto outside = device::outside_account(*below, ledger);
    auto error = outside ? device::nothing_left(terms, *memory.total, *outside) : std::nullopt;
    if (error) return tl::make_unexpected(*std::move(error));
  }
  auto stack = std::make_shared<GlobalDeviceBudget>(*std::move(checked), std::move(account), terms);
  stack->refresh();
  return stack;
}

GlobalDeviceBudget::GlobalDeviceBudget(InnerResource inner, DeviceAccount account, Terms const& terms) noexcept
    : ResourceDecorator(std::move(inner)),
      account_(std::move(account)),
      terms_(terms),
      reports_returns_(ResourceDecorator::reports_returns()) {}

void GlobalDeviceBudget::refresh() const noexcept {
  if (flight::in_forked_child()) return;
  Ledger& ledger = account_.core_->ledger();
  const auto figures = device::figures_of(*inner());
  device::write_figures(ledger.cell(), figures);
  if (terms_.options == DeviceBudgetOptions{} || !figures.total) return;
  // The account's own outside, not the process's: a manager beside it takes memory as a library does.
  const auto outside = device::outside_account(*inner(), ledger);
  if (!outside) return;
  const MemoryBudget limit = device::limit_in_force(terms_.budget, terms_.options, *figures.total, *outside);
  if (ledger.budget() != limit) ledger.set_budget(limit);
}

// No exception leaves the library, and none may pass the books by.
Result<Block> GlobalDeviceBudget::ask_below(AllocRequest const& request) noexcept {
  return device::guarded([&] { return ResourceDecorator::allocate(request); });
}

Result<void> GlobalDeviceBudget::free_below(Block const& block) noexcept {
  return device::guarded([&] { return ResourceDecorator::deallocate(block); });
}

Result<Block> GlobalDeviceBudget::allocate(AllocRequest const& request) {
  if (flight::in_forked_child()) return tl::make_unexpected(forked_child());
  AllocRequest below = request;
  below.reserved = false;
  if (request.bytes == 0) return ask_below(below);
  AccountCore& core = *account_.core_;
  Ledger& ledger = core.ledger();
  flight::ThreadState& thread = flight::this_thread();
  const AccountRequest asked{.core = core,
                             .budget = *this,
                             .thread = thread,
                             .bytes = request.bytes,
                             .alignment = request.alignment,
                             .start_ticks = ticks_now(),
                             .tag = device::place_of(ledger, request.tag),
                             .reserved = request.reserved};
  if (!acceptable(request)) [[unlikely]] {
    auto wrong = wrong_request(request);
    const LaneSection section{thread};
    ledger.book_refusal(section,
                        device::refusal_of(asked, wrong.value().kind, wrong.value().layer, device::present_claim(ledger)));
    return wrong;
  }

  const AccountScope scope{thread, ledger, request.reserved ? InFlight::spending : InFlight::allocating, request.bytes};
  ClaimResult claim;
  if (request.reserved) {
    claim = device::present_claim(ledger);
    if (!ledger.try_spend(request.bytes)) {
      return tl::make_unexpected(device::refuse(asked, ErrorKind::invalid_argument, claim,
                                                "the request says that its bytes are reserved; found " +
                                                    std::to_string(ledger.cell().unspent.load(std::memory_order_relaxed)) +
                                                    " unspent bytes on " + core.name() + ", expected at least " +
                                                    std::to_string(request.bytes)));
    }
  } else {
    if (auto error = device::take(asked, &Ledger::claim, claim)) [[unlikely]]
      return tl::make_unexpected(*std::move(error));
    const LaneSection section{thread};
    ledger.judge_pressure(section);
    if (claim.outcome == ClaimOutcome::observed) [[unlikely]] {
      auto observed = device::refusal_of(asked, ErrorKind::over_budget, Layer::device_account, claim);
      observed.observed = true;
      ledger.book_refusal(section, observed);
    }
  }

  AskBelow again{*this, asked, below};
  Result<Block> block = again.ask();
  if (!block) [[unlikely]]
    block = device::ask_again_if_short(*inner(), below, std::move(block), again);
  if (!block) [[unlikely]] {
    if (auto const& line = again.stopped_at())
      return tl::make_unexpected(device::refuse_at_line(asked, *line, block.error().message));
    return tl::make_unexpected(device::refuse_below(asked, std::move(block.error())));
  }
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
  const flight::TagPlace tag = device::place_of(ledger, block.tag);

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
  const AccountRequest asked{.core = core,
                             .budget = *this,
                             .thread = thread,
                             .bytes = bytes,
                             .start_ticks = ticks_now(),
                             .tag = device::place_of(ledger, flight::kUntagged)};
  const AccountScope scope{thread, ledger, InFlight::reserving, std::min(bytes, kLargestRequest)};
  ClaimResult claim;
  if (auto error = device::take(asked, &Ledger::reserve, claim)) return tl::make_unexpected(*std::move(error));
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
