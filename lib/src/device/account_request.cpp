#include "device/account_request.hpp"

#include <algorithm>
#include <utility>

#include <headroom/byte_size.hpp>

#include "base/thrown_error.hpp"
#include "device/device_limit.hpp"
#include "flight/tag_names.hpp"
#include "ledger/figures.hpp"

namespace headroom::device {

using flight::LaneSection;
using ledger::ClaimOutcome;
using ledger::ClaimResult;
using ledger::Ledger;

namespace {

std::string shortage(AccountRequest const& request, std::optional<Error> const& reap_failure) {
  std::string text = request.core.name();
  if (auto const& options = request.budget.options(); options != DeviceBudgetOptions{}) text += ", " + options_text(options);
  if (const auto pending = request.core.pending_free_bytes(); pending != 0)
    text += ", " + format_bytes(pending) + " in pending frees";
  if (reap_failure) text += ", and finishing them failed: " + reap_failure->to_string();
  return text;
}

std::string beyond_ledger(std::uint64_t bytes) {
  return std::to_string(bytes) + " bytes cannot be held: an account counts up to " + std::to_string(kLargestRequest) +
         " (16 TiB - 1) in all";
}

void give_back(AccountRequest const& request) noexcept {
  Ledger& ledger = request.core.ledger();
  if (request.reserved) return ledger.unspend(request.bytes);
  const LaneSection section{request.thread};
  ledger.unclaim(request.bytes, section);
}

}  // namespace

flight::TagPlace place_of(Ledger& ledger, std::uint16_t tag) noexcept {
  return ledger.tag_place(tag < flight::tag_names_used() ? tag : flight::kUntagged);
}

ledger::Refusal refusal_of(AccountRequest const& request, ErrorKind kind, Layer layer, ClaimResult const& claim) noexcept {
  return {.kind = kind,
          .layer = layer,
          .requested = request.bytes,
          .alignment = request.alignment,
          .claimed = claim.claimed_before,
          .limit_word = claim.limit_word,
          .device_free = {},
          .start_ticks = request.start_ticks,
          .tag = request.tag,
          .typed = false};
}

ClaimResult present_claim(Ledger const& ledger) noexcept {
  return {.outcome = ClaimOutcome::refused, .claimed_before = ledger.words().claimed, .limit_word = ledger.limit_word()};
}

Error refuse(AccountRequest const& request, ErrorKind kind, ClaimResult const& claim, std::string message,
             DeviceFigures const& figures) {
  Ledger& ledger = request.core.ledger();
  {
    const LaneSection section{request.thread};
    auto refusal = refusal_of(request, kind, Layer::device_account, claim);
    refusal.device_free = figures.free;
    ledger.book_refusal(section, refusal);
  }
  Error error = make_error(kind, Layer::device_account, std::move(message));
  add_device_figures(error, figures);
  error.requested = request.bytes;
  ledger::add_figures(error, ledger, claim);
  ledger::add_holders(error, ledger);
  return error;
}

std::optional<Error> take(AccountRequest const& request, AccountCore::Claim claim, ClaimResult& result) {
  Ledger& ledger = request.core.ledger();
  result = (ledger.*claim)(request.bytes);
  std::optional<Error> reap_failure;
  if (result.outcome == ClaimOutcome::refused) {
    // The limit may be an old one, from when more was used outside.
    if (request.budget.options() != DeviceBudgetOptions{}) request.budget.refresh();
    auto attempt = request.core.claim_after_reaping(request.bytes, claim);
    result = attempt.claim;
    reap_failure = std::move(attempt.reap_failure);
  }
  if (result.outcome == ClaimOutcome::refused) {
    // Without options the device has no part in this, and its driver is not called for a request that the budget refuses.
    const bool device_matters = request.budget.options() != DeviceBudgetOptions{};
    return refuse(request, ErrorKind::over_budget, result, words([&] { return shortage(request, reap_failure); }),
                  device_matters ? figures_of(*request.budget.inner()) : DeviceFigures{});
  }
  if (result.outcome == ClaimOutcome::overflow)
    return refuse(request, ErrorKind::overflow, result, words([&] { return beyond_ledger(request.bytes); }));
  return std::nullopt;
}

Error refuse_below(AccountRequest const& request, Error error) {
  Ledger& ledger = request.core.ledger();
  give_back(request);
  if (error.kind == ErrorKind::device_out_of_memory) {
    request.budget.refresh();
    add_device_figures(error, figures_of(*request.budget.inner()));
  }
  const LaneSection section{request.thread};
  auto refusal = refusal_of(request, error.kind, error.layer, present_claim(ledger));
  refusal.device_free = error.device_free;
  refusal.device_code = error.device_code;
  ledger.book_refusal(section, refusal);
  if (!error.requested) error.requested = request.bytes;
  return error;
}

Error refuse_at_line(AccountRequest const& request, Line const& line, std::string const& what_was_tried) {
  give_back(request);
  request.budget.refresh();
  ClaimResult claim = present_claim(request.core.ledger());
  const std::uint64_t allowed = less(line.room, line.footprint - request.bytes);
  claim.limit_word = ledger::pack_limit(std::min(claim.claimed_before + allowed, ledger::kBytesMask), true, false);
  return refuse(request, ErrorKind::over_budget, claim, words([&] { return shortage(request, std::nullopt) + what_was_tried; }),
                figures_of(*request.budget.inner()));
}

}  // namespace headroom::device
