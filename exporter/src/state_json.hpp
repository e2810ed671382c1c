// headroom: what `/api/state.json` says: processes as JSON. README.md beside this folder describes every key.
//
// The same for the exporter of one process and for whoever serves a machine: an array of processes, of which some come with details.
// Strict JSON (RFC 8259): names are valid UTF-8 whatever the program calls its things, whole numbers above 2^53 are strings of digits,
// and what is not known is null, never 0. Names of keys are those of `headroom ps --json`, where it has them.
//
// Pure functions over looks (followed.hpp). Bounded: the tags and failures of a process that are listed are the most important ones.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <headroom/gpu_devices.hpp>

#include "followed.hpp"

namespace headroom::exporter {

/// What a client asked for: `?detail=ID,ID&since=SECOND`.
struct StateRequest {
  /// The processes whose details are wanted. Absent: all. `auto` among them: the only one, if there is one only.
  std::optional<std::vector<std::string>> detail{};
  std::uint64_t since_second = 0;  ///< of the histories

  /// What cannot be read is as if it were not there.
  [[nodiscard]] static StateRequest from_query(std::multimap<std::string, std::string> const& query);
  [[nodiscard]] bool wants(std::string const& id, std::size_t processes) const;
};

/// How a process is called in requests and answers: `PID-RUN`.
[[nodiscard]] std::string state_id(flight::ProcessInfo const& process);

/// One process, as it is, or was at its end: `ended_seconds` is null, and for whoever saw the end to set. `gpus`: of the machine it runs on, as just read; empty: unknown, or none.
[[nodiscard]] nlohmann::ordered_json process_json(Look const& look, bool with_details, std::span<GpuDevice const> gpus);

/// What an answer does not have, because there is a bound.
struct StateLeftOut {
  std::uint64_t processes = 0, ended = 0;  ///< that are not listed
  std::uint64_t details = 0;               ///< processes whose details were asked for
  std::uint64_t histories = 0;             ///< managers that have figures but no past
};

/// All of it, as text. `serves`: `process` or `machine`.
[[nodiscard]] std::string state_text(std::string_view serves, std::vector<nlohmann::ordered_json> processes,
                                     std::uint64_t exporter_errors, StateLeftOut const& left_out = {});

}  // namespace headroom::exporter
