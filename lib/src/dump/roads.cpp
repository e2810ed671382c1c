#include "dump/roads.hpp"

#include <algorithm>
#include <span>

namespace headroom::dump {
namespace {

using flight::EventKind;
using flight::PolicyStep;

/// What a step was about: all but these say how much came back.
bool names_its_request(PolicyStep step) noexcept {
  return step != PolicyStep::retried && step != PolicyStep::reservation_given && step != PolicyStep::none;
}

RefusedRequest request_of(RecordWords const& words) noexcept {
  return {.bytes = words[2], .site = words[6], .ledger = ledger_of(words), .tag = tag_of(words), .result = result_of(words)};
}

}  // namespace

template <class Fits>
Roads::Open* Roads::innermost(Fits const& fits) noexcept {
  for (std::size_t i = count_; i-- > 0;) {
    if (fits(open_[i])) return &open_[i];
  }
  return nullptr;
}

/// What lies further in is over, and had an end if anything was tried for it.
std::optional<std::uint64_t> Roads::touch(Open* open) noexcept {
  if (open == nullptr) return std::nullopt;
  const std::size_t count = static_cast<std::size_t>(open - open_.data()) + 1;
  for (Open const& over : std::span{open_.data() + count, count_ - count}) {
    if (over.touched) aside_.add(over.number);
  }
  count_ = count;
  open->touched = true;
  return open->number;
}

// A full stack forgets the oldest one for which nothing was tried, as nothing more may be known of it; but never the first of all, which
// may be whom a story is about.
void Roads::push(Open const& open) noexcept {
  if (is_wanted(open)) wanted_seen_ = open.number;
  if (count_ == kMost) {
    auto* const all = open_.data();
    auto* forgotten = std::find_if(all + 1, all + kMost, [&](Open const& one) { return !one.touched && !is_wanted(one); });
    if (forgotten == all + kMost) forgotten = all + 1;
    std::move(forgotten + 1, all + kMost, forgotten);
    --count_;
  }
  open_[count_++] = open;
}

// Requests of one size, tag, ledger and result may lie within each other, as where a callback asks for what could not be had. Then the
// instant at which the step began tells them apart: whatever was refused later is not what it was about.
Roads::Open* Roads::of_step(RecordWords const& words) noexcept {
  const bool named = names_its_request(static_cast<PolicyStep>(words[2] & 0xFFU));
  const std::uint32_t result = result_of(words);  // 0: granted
  const auto fits = [&](Open const& open) {
    return (!named || open.request.bytes == words[4]) && open.request.ledger == ledger_of(words) &&
           open.request.tag == tag_of(words) && (result == 0 || open.request.result == result);
  };
  // Two clocks: the duration's runs at a rate that is known to some millionths only.
  constexpr double kClocksDiffer = 1.0 / 65'536;
  const double duration = static_cast<double>(words[3]) * ticks_per_ns_;
  const double begin = static_cast<double>(words[1]) - duration + duration * kClocksDiffer;
  const auto came_before = [&](Open const& open) { return static_cast<double>(open.ticks) <= begin; };
  if (auto* const open = innermost([&](Open const& one) { return fits(one) && came_before(one); })) return open;
  if (auto* const open = innermost([&](Open const& one) { return one.touched && fits(one); })) return open;
  auto* const end = open_.data() + count_;
  auto* const first = std::find_if(open_.data(), end, fits);
  return first == end ? nullptr : first;
}

std::optional<std::uint64_t> Roads::take(std::uint64_t number, RecordWords const& words) noexcept {
  has_ended_ = false;
  switch (kind_of(words)) {
    case EventKind::refusal:
      if (continues(words)) return std::nullopt;
      if (aside_.has(number)) {
        if (request_of(words) == wanted_) wanted_seen_ = number;
        return std::nullopt;
      }
      push({.number = number, .ticks = words[1], .request = request_of(words)});
      return number;
    case EventKind::hook_begin: {
      auto* const open =
          innermost([&](Open const& one) { return one.request.bytes == words[6] && one.request.ledger == ledger_of(words); });
      if (open != nullptr) open->in_hook = true;
      return touch(open);
    }
    case EventKind::hook_end: {
      if (continues(words)) return std::nullopt;
      // Hooks do not nest on a thread: the one that runs is the one that ended.
      auto* const open = innermost([](Open const& one) { return one.in_hook; });
      if (open != nullptr) open->in_hook = false;
      return touch(open);
    }
    case EventKind::hook_skip: return touch(innermost([&](Open const& one) { return one.request.ledger == ledger_of(words); }));
    case EventKind::policy: {
      auto* const open = of_step(words);
      const auto about = touch(open);
      const auto step = static_cast<PolicyStep>(words[2] & 0xFFU);
      if (open == nullptr || (step != PolicyStep::recovered && step != PolicyStep::gave_up)) return about;
      has_ended_ = true;
      if (is_wanted(*open)) wanted_end_ = open->number;
      --count_;
      const auto* const all = open_.data();
      if (std::none_of(all, all + count_, [](Open const& one) { return one.touched; })) ended_ = about;
      return about;
    }
    case EventKind::thread_detach:  // its number may come again, as another thread's
      count_ = 0;
      return std::nullopt;
    default: return std::nullopt;
  }
}

std::optional<std::uint64_t> Roads::newest() const noexcept {
  const std::span all{open_.data(), count_};
  if (wanted_) {
    auto found = wanted_end_;
    for (Open const& one : all) {
      if (is_wanted(one)) found = std::max(found.value_or(0), one.number);
    }
    return found ? found : wanted_seen_;
  }
  const auto outermost = std::ranges::find_if(all, &Open::touched);
  if (outermost != all.end()) return outermost->number;
  if (all.empty()) return ended_;
  return std::max(ended_.value_or(0), all.back().number);
}

}  // namespace headroom::dump
