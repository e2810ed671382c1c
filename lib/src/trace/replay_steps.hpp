// headroom: a history prepared for replay.
//
// Everything that depends on the history alone is settled when it is loaded: which allocation a free belongs to becomes a slot
// number, and slots are dense and reused, so that the slots in use are few and stay in the cache. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headroom/replay.hpp>

namespace headroom::trace {

enum class StepAction : std::uint8_t {
  allocate,    // into an empty slot
  free,        // what its slot holds; bytes are those of the allocation
  empty,       // zero bytes at no address: requested or freed, and never live
  empty_free,  // … its free
  failure,     // recorded `allocate failure`
  unmatched_free,
};

struct Step {
  std::uint64_t bytes = 0;
  std::uint64_t time_us = 0;  // since the first record
  std::uint32_t slot = 0;     // allocate and free only
  std::uint32_t stream = 0;   // index of stream_ids
  std::uint32_t line = 0;     // saturates; 0 = from before the history
  std::uint32_t thread : 24 = 0;
  std::uint32_t action : 8 = 0;  // a StepAction

  [[nodiscard]] StepAction what() const noexcept { return static_cast<StepAction>(action); }
};
static_assert(sizeof(Step) == 32 && TraceReader::kMaxThreads <= (1U << 24U));

}  // namespace headroom::trace

namespace headroom {

struct TraceHistory::Data {
  std::string name;
  std::vector<trace::Step> steps;
  std::vector<std::uint64_t> thread_ids;
  std::vector<std::uint64_t> stream_ids;
  TraceFormat format = TraceFormat::rmm_csv;
  std::optional<std::uint32_t> device;       // of the records; absent: there are none
  std::vector<std::string> recorded_names;   // of tags that the history recorded, "" first
  std::vector<std::uint32_t> recorded_tags;  // index of recorded_names by step; empty: none has one
  std::uint64_t from_before = 0;             // steps that are allocations from before the history
  std::uint32_t slots = 0;                   // most slots in use at once
  std::uint64_t duration_us = 0;
};

}  // namespace headroom
