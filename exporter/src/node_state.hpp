// headroom: what a node exporter serves for people: the live page, its state, and post-mortems of the living.
//
// The same routes as a process's own exporter (service.hpp), for all processes at once: the page lists them, and asks for details of
// those that are opened. Post-mortems are asked for by process.
//
// Bounds: what NodeFollowed keeps, and the details of kDetails processes in one answer, or of as many as have kDetailedManagers managers
// together. The answer says what was left out.
//
// Thread safety: from any thread; what is given to it must stand that. Cost: some 50 µs a process and answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <headroom/gpu_sampler.hpp>

#include "http.hpp"
#include "node_followed.hpp"
#include "snapshots.hpp"
#include "state_json.hpp"

namespace headroom::exporter {

class NodeState {
public:
  static constexpr std::size_t kDetails = 16;            ///< processes with details in one answer
  static constexpr std::size_t kDetailedManagers = 128;  ///< … and managers in all of them; the first one has all of its own

  struct Options {
    std::function<bool(flight::FlightView const&)> is_whole;
    std::function<std::uint64_t()> errors;                   ///< of the exporter so far; must not throw
    std::function<std::shared_ptr<GpuSample const>()> gpus;  ///< as just read; null: unknown
  };
  NodeState(NodeFollowed& followed, Options options);

  /// For browsers the live page; for everybody else text.
  [[nodiscard]] Reply status(Request const& request);
  /// state_json.hpp.
  [[nodiscard]] Reply state(Request const& request);
  /// `?process=PID` or `PID-RUN`; without, of the only one that lives. 404 when there is none such, 400 when there are several, or the
  /// words are none of these; both say what there is.
  [[nodiscard]] Reply snapshot(Request const& request);

private:
  using Json = nlohmann::ordered_json;
  struct Answer;
  void add_living(Answer& answer, NodeFollowed::Process& process);
  void add_ended(Answer& answer, NodeFollowed::Ended const& ended) const;

  NodeFollowed& followed_;
  std::function<bool(flight::FlightView const&)> is_whole_;
  std::function<std::uint64_t()> errors_;
  std::function<std::shared_ptr<GpuSample const>()> gpus_;
  Snapshots snapshots_;
};

}  // namespace headroom::exporter
