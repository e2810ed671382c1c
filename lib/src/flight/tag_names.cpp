#include "flight/tag_names.hpp"

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include <headroom/flight_format.hpp>
#include <headroom/tag.hpp>

#include "base/utf8.hpp"
#include "flight/recorder.hpp"
#include "flight/thread_state.hpp"

namespace headroom::flight {
namespace {

struct Names {
  std::mutex mutex;
  std::map<std::string, std::uint16_t, std::less<>> numbers;  // guarded by mutex
  // Written once under the mutex (release), read without it (acquire).
  std::array<std::atomic<const char*>, kTagNames> texts{};
  std::atomic<std::uint16_t> used{1};  // 0 is "untagged"; written under the mutex (release), read without it

  Names() { texts[kUntagged].store("untagged", std::memory_order_release); }
};

// Made at first use and never destroyed: static tags and static buffers of other files come and go in any order.
Names& names() {
  static Names& instance = *new Names;
  return instance;
}

}  // namespace

std::uint16_t intern_tag_name(std::string_view name) {
  Names& table = names();
  const std::string clean = valid_utf8(name, kLabelBytes - 1);
  if (clean.empty()) return kUntagged;
  const std::scoped_lock lock{table.mutex};
  if (const auto known = table.numbers.find(clean); known != table.numbers.end()) return known->second;
  const std::uint16_t number = table.used.load(std::memory_order_relaxed);
  if (number == kTagNames - 1) {  // the last number is kept for `other`
    const auto other = static_cast<std::uint16_t>(kTagNames - 1);
    table.texts[other].store("other", std::memory_order_release);
    if (recorder.header != nullptr) recorder.header->tags_folded.fetch_add(1, std::memory_order_relaxed);
    return other;
  }
  const auto [entry, added] = table.numbers.emplace(clean, number);
  table.texts[number].store(entry->first.c_str(), std::memory_order_release);
  table.used.store(static_cast<std::uint16_t>(number + 1), std::memory_order_release);
  return number;
}

std::uint16_t tag_names_used() noexcept { return names().used.load(std::memory_order_acquire); }

const char* tag_name(std::uint16_t tag) noexcept {
  const char* text = tag < kTagNames ? names().texts[tag].load(std::memory_order_acquire) : nullptr;
  return text != nullptr ? text : "untagged";
}

void lock_tag_names() noexcept { names().mutex.lock(); }
void unlock_tag_names() noexcept { names().mutex.unlock(); }

}  // namespace headroom::flight

namespace headroom {

AllocTag::AllocTag(std::string_view name) : id_(flight::intern_tag_name(name)) {}

std::string_view AllocTag::name() const noexcept { return flight::tag_name(id_); }

TagScope::TagScope(AllocTag tag) noexcept : outer_(flight::thread_state.scoped_tag) {
  if (!tag.is_default()) flight::thread_state.scoped_tag = tag.id();
}

TagScope::~TagScope() { flight::thread_state.scoped_tag = outer_; }

}  // namespace headroom
