#include <headroom/fault_plan.hpp>

#include <algorithm>
#include <utility>

namespace headroom {
namespace {

bool matches(FaultRule const& rule, FaultOperation operation, std::uint64_t bytes, std::uint16_t tag) noexcept {
  return rule.operation == operation && bytes >= rule.min_bytes && bytes <= rule.max_bytes && (!rule.tag || *rule.tag == tag) &&
         (!rule.thread || *rule.thread == std::this_thread::get_id());
}

// `matched` is the number of this operation among those that match, from 1.
bool is_due(FaultRule const& rule, std::uint64_t matched, std::uint64_t failed) noexcept {
  return failed < rule.times && matched >= rule.nth && (matched - rule.nth) % rule.every == 0;
}

}  // namespace

FaultId FaultPlan::add(FaultRule rule) {
  rule.nth = std::max<std::uint64_t>(rule.nth, 1);
  rule.every = std::max<std::uint64_t>(rule.every, 1);
  std::lock_guard const lock(mutex_);
  FaultId const id{next_id_};
  entries_.push_back({id, std::move(rule)});
  ++next_id_;
  armed_.store(true, std::memory_order_relaxed);
  return id;
}

FaultId FaultPlan::inject_on_this_thread(FaultOperation operation, std::uint64_t successes, std::uint64_t failures,
                                         ErrorKind kind, std::int32_t device_code) {
  return add({.operation = operation,
              .nth = successes + 1,
              .times = failures,
              .thread = std::this_thread::get_id(),
              .kind = kind,
              .device_code = device_code});
}

bool FaultPlan::remove(FaultId id) {
  std::lock_guard const lock(mutex_);
  auto const removed = std::erase_if(entries_, [id](Entry const& entry) { return entry.id == id; });
  armed_.store(!entries_.empty(), std::memory_order_relaxed);
  return removed != 0;
}

void FaultPlan::clear() {
  std::lock_guard const lock(mutex_);
  entries_.clear();
  armed_.store(false, std::memory_order_relaxed);
}

std::uint64_t FaultPlan::failures(FaultId id) const {
  std::lock_guard const lock(mutex_);
  auto const entry = std::ranges::find(entries_, id, &Entry::id);
  return entry == entries_.end() ? 0 : entry->failed;
}

std::uint64_t FaultPlan::failures() const {
  std::lock_guard const lock(mutex_);
  return failures_;
}

std::optional<Error> FaultPlan::next_armed(FaultOperation operation, std::uint64_t bytes, std::uint16_t tag) {
  std::lock_guard const lock(mutex_);
  Entry const* due = nullptr;
  for (auto& entry : entries_) {
    if (!matches(entry.rule, operation, bytes, tag)) continue;
    ++entry.matched;
    if (due == nullptr && is_due(entry.rule, entry.matched, entry.failed)) {
      ++entry.failed;
      due = &entry;
    }
  }
  if (due == nullptr) return std::nullopt;
  ++failures_;
  auto error = make_error(due->rule.kind, Layer::driver, due->rule.message.empty() ? "injected fault" : due->rule.message);
  error.device_code = due->rule.device_code;
  error.requested = bytes;
  return error;
}

}  // namespace headroom
