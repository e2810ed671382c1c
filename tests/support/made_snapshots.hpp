// Memory snapshots of PyTorch, made up by hand: entries, frames, blocks and segments, and the whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pickle_bytes.hpp"

namespace headroom::test::made {

using pickled::Fields;
using pickled::Opcodes;

/// An entry of a trace; `more` comes behind the usual fields.
[[nodiscard]] inline Opcodes entry(std::string_view action, std::uint64_t address, std::uint64_t bytes, std::uint64_t time_us,
                                   Fields const& more = {}) {
  Fields fields{{"action", pickled::text(action)},
                {"addr", pickled::integer(address)},
                {"size", pickled::integer(bytes)},
                {"stream", pickled::integer(0)},
                {"time_us", pickled::integer(time_us)}};
  fields.insert(fields.end(), more.begin(), more.end());
  return pickled::dict(fields);
}

[[nodiscard]] inline Opcodes frame(std::string_view file, std::uint64_t line, std::string_view function) {
  return pickled::dict({{"name", pickled::text(function)}, {"filename", pickled::text(file)}, {"line", pickled::integer(line)}});
}

struct BlockFields {
  std::optional<std::uint64_t> address{};
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> requested{};
  std::string state = "active_allocated";
  Fields more{};
};
[[nodiscard]] inline Opcodes block(BlockFields const& of) {
  Fields fields{{"size", pickled::integer(of.bytes)}, {"state", pickled::text(of.state)}};
  if (of.address) fields.emplace_back("address", pickled::integer(*of.address));
  if (of.requested) fields.emplace_back("requested_size", pickled::integer(*of.requested));
  fields.insert(fields.end(), of.more.begin(), of.more.end());
  return pickled::dict(fields);
}

[[nodiscard]] inline Opcodes segment(std::uint32_t device, std::uint64_t address, std::uint64_t bytes,
                                     std::vector<Opcodes> const& blocks, Fields const& more = {}) {
  Fields fields{{"device", pickled::integer(device)},     {"address", pickled::integer(address)},
                {"total_size", pickled::integer(bytes)},  {"stream", pickled::integer(0)},
                {"segment_type", pickled::text("large")}, {"blocks", pickled::list(blocks)}};
  fields.insert(fields.end(), more.begin(), more.end());
  return pickled::dict(fields);
}

/// `traces`: of devices 0, 1, …
[[nodiscard]] inline std::string snapshot(std::vector<Opcodes> const& segments, std::vector<std::vector<Opcodes>> const& traces,
                                          Fields const& more = {}) {
  std::vector<Opcodes> lists;
  for (auto const& trace : traces) lists.push_back(pickled::list(trace));
  Fields fields{{"segments", pickled::list(segments)}, {"device_traces", pickled::list(lists)}};
  fields.insert(fields.end(), more.begin(), more.end());
  return pickled::pickle(pickled::dict(fields));
}

}  // namespace headroom::test::made
