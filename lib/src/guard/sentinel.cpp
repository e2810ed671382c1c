#include "guard/sentinel.hpp"

#include <string>

#include <headroom/byte_size.hpp>

#include "base/clock.hpp"
#include "base/test_wait.hpp"
#include "device/guarded.hpp"
#include "flight/recorder.hpp"
#include "guard/attempt.hpp"
#include "guard/callback_scope.hpp"
#include "ledger/waiting.hpp"
#include "manager/shortage.hpp"

namespace headroom::guard {
namespace {

// Made at the first use: a program without reservations has no such tag.
AllocTag reservation_tag() {
  static const AllocTag tag{"reservation"};
  return tag;
}

// For a device to free a block.
constexpr std::chrono::seconds kPatience{1};

}  // namespace

Sentinel::~Sentinel() {
  if (release() != 0 || held() == 0) return;
  // The device refused to take it. Once more, and whatever comes of it, nobody holds it back any longer.
  const std::uint64_t bytes = held();
  if (counted_) {
    manager::release_or_count(allocation_);
  } else {
    static_cast<void>(give_back_outside());
  }
  route_->ledger().cell().sentinel_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

Result<void> Sentinel::take(manager::Route& route, std::uint64_t bytes, bool counted, std::source_location const& site) {
  if (bytes == 0) return success();
  if (flight::in_forked_child()) return tl::unexpected{manager::forked_child_error()};
  route_ = &route;
  counted_ = counted;
  if (counted) {
    const manager::AllocArguments arguments{.count = bytes, .tag = reservation_tag()};
    if (auto error = manager::allocate(route, arguments, site, allocation_)) {
      allocation_.clear();
      return tl::unexpected{std::move(*error)};
    }
  } else if (Result<void> taken = take_outside(bytes); !taken) {
    return taken;
  }
  route.ledger().cell().sentinel_bytes.fetch_add(bytes, std::memory_order_relaxed);
  owned_.store(true, std::memory_order_release);
  held_.store(bytes, std::memory_order_release);
  return success();
}

Result<void> Sentinel::take_outside(std::uint64_t bytes) {
  const AllocRequest request{.bytes = bytes, .alignment = kMinimumAlignment, .stream = {}, .tag = reservation_tag().id()};
  Result<Block> block = manager::ask_for_block(route_->resource(), request);
  if (!block) block = manager::ask_again_if_short(*route_, request, route_->ledger().tag_place(request.tag), std::move(block));
  if (!block) {
    Error error = std::move(block.error());
    error.requested = bytes;
    add_clause(error, [&] { return "a guard was to hold " + format_bytes(bytes) + " back"; });
    return tl::unexpected{std::move(error)};
  }
  block_ = *block;
  return success();
}

std::uint64_t Sentinel::release() noexcept {
  const std::uint64_t bytes = held_.exchange(0, std::memory_order_acq_rel);
  // In a forked child device and books are the parent's.
  if (bytes == 0 || flight::in_forked_child()) return 0;
  const Result<void> freed = counted_ ? manager::release_or_keep(allocation_) : give_back_outside();
  if (freed) {
    route_->ledger().cell().sentinel_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    owned_.store(false, std::memory_order_release);
  } else {
    held_.store(bytes, std::memory_order_release);
  }
  releases_ended_.fetch_add(1, std::memory_order_release);
  ledger::wake_all(releases_ended_);
  return freed ? bytes : 0;
}

void Sentinel::wait_for_release() noexcept {
  const auto deadline = steady_now() + kPatience;
  for (;;) {
    const std::uint64_t ended = releases_ended_.load(std::memory_order_acquire);
    if (!owned_.load(std::memory_order_acquire) || held() != 0) return;
    // A release tells listeners before it is over, and this may be one of them.
    if (inside_callback() || steady_now() >= deadline) return;
    ledger::sleep_on_epoch(releases_ended_, ended, deadline);
  }
}

Result<void> Sentinel::give_back_outside() noexcept {
  const std::uint64_t start_ticks = ticks_now();
  const Result<void> freed = device::guarded([&] { return route_->resource().deallocate(block_); });
  if (!freed) {
    ledger::Ledger& ledger = route_->ledger();
    const flight::LaneSection section{flight::this_thread()};
    ledger.book_free_failure(section,
                             {.bytes = block_.bytes,
                              .alignment = block_.alignment,
                              .address = reinterpret_cast<std::uintptr_t>(block_.pointer),
                              .stream = block_.stream.value,
                              .start_ticks = start_ticks,
                              .end_ticks = ticks_now(),
                              .tag = ledger.tag_place(block_.tag)},
                             freed.error().kind, freed.error().layer);
  }
  return freed;
}

}  // namespace headroom::guard
