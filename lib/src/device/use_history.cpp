#include "device/use_history.hpp"

#include <algorithm>
#include <utility>

namespace headroom::device {
namespace {

constexpr std::size_t kSmallestCrowd = 8;

}  // namespace

UseHistory::UseHistory(StreamId allocation_stream, std::uint64_t number) : crowded_at_(kSmallestCrowd) {
  streams_.push_back({.id = allocation_stream, .write = {.number = number}});
}

UseHistory::Stream const* UseHistory::find(StreamId stream) const noexcept {
  auto const found = std::ranges::find(streams_, stream, &Stream::id);
  return found == streams_.end() ? nullptr : &*found;
}

UseHistory::Stream& UseHistory::at(StreamId stream) {
  auto const found = std::ranges::find(streams_, stream, &Stream::id);
  return found != streams_.end() ? *found : streams_.emplace_back(Stream{.id = stream});
}

std::vector<UseHistory::Awaited> UseHistory::before(StreamId stream, UseKind kind) const {
  auto const* const own = find(stream);
  auto const all = own == nullptr ? 0 : own->waited_for_all;
  auto const writes = own == nullptr ? 0 : std::max(own->waited_for_writes, all);
  std::vector<Awaited> awaited;
  for (auto const& other : streams_) {
    if (other.id == stream) continue;
    if (kind == UseKind::write && other.read.number != 0) {
      if (other.read.number > all) awaited.push_back({other.read.number, other.read.event});
      // A read is in the table beside a write of its stream only if it came later there: it stands for both.
      continue;
    }
    if (other.write.number > writes) awaited.push_back({other.write.number, other.write.event});
  }
  return awaited;
}

void UseHistory::waited(StreamId stream, UseKind kind, std::uint64_t number) {
  auto& own = at(stream);
  auto& mark = kind == UseKind::write ? own.waited_for_all : own.waited_for_writes;
  mark = std::max(mark, number);
}

std::uint64_t UseHistory::waited_for_all(StreamId stream) const noexcept {
  auto const* const own = find(stream);
  return own == nullptr ? 0 : own->waited_for_all;
}

void UseHistory::put(Use& slot, NewUse const& use, std::uint64_t number, std::vector<EventRef>& dropped) noexcept {
  clear(slot, dropped);
  slot = {.number = number, .ticket = use.ticket, .event = use.event};
}

void UseHistory::clear(Use& slot, std::vector<EventRef>& dropped) noexcept {
  if (slot.event != nullptr) dropped.push_back(std::move(slot.event));  // room was made by `add`
  slot = {};
}

void UseHistory::add(NewUse const& use, std::uint64_t number, std::vector<EventRef>& dropped) {
  auto& own = at(use.stream);
  dropped.reserve(dropped.size() + 2 * streams_.size());
  // Threads may arrive here in another order than they recorded in: what has the larger ticket stands for this use already.
  if (own.write.ticket > use.ticket) return;
  if (use.kind == UseKind::read) {
    if (own.read.ticket < use.ticket) put(own.read, use, number, dropped);
    return;
  }
  put(own.write, use, number, dropped);
  if (own.read.ticket < use.ticket) clear(own.read, dropped);
  for (auto& other : streams_) {
    if (&other == &own) continue;
    if (other.write.number <= use.covered) clear(other.write, dropped);
    if (other.read.number <= use.covered) clear(other.read, dropped);
  }
}

void UseHistory::set_allocation_event(EventRef const& event) noexcept {
  // The allocation is the only use that can lack an event, and it has ticket 0.
  for (auto& stream : streams_) {
    if (stream.write.number == 0 || stream.write.event != nullptr) continue;
    stream.write.event = event;
    if (event == nullptr) stream.write.number = 0;
    return;
  }
}

std::vector<UseHistory::Awaited> UseHistory::recorded() const {
  std::vector<Awaited> all;
  for (auto const& stream : streams_) {
    for (auto const* const use : {&stream.write, &stream.read}) {
      if (use->event != nullptr) all.push_back({use->number, use->event});
    }
  }
  return all;
}

void UseHistory::drop_finished(std::vector<Awaited> const& finished) noexcept {
  auto const drop = [&finished](Use& use) {
    if (use.number != 0 && std::ranges::find(finished, use.number, &Awaited::number) != finished.end()) use = {};
  };
  for (auto& stream : streams_) {
    drop(stream.write);
    drop(stream.read);
  }
  // What a stream without uses has waited for may be forgotten: at worst it waits once more, or a write of it in progress leaves
  // uses in the table that it could have taken out.
  std::erase_if(streams_, [](Stream const& stream) { return stream.write.number == 0 && stream.read.number == 0; });
  crowded_at_ = std::max(kSmallestCrowd, 2 * streams_.size());
}

}  // namespace headroom::device
