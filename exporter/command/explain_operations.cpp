// What threads are doing right now, or were when the records end: one sentence, however many they are.
#include <algorithm>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/explanation.hpp"
#include "command/output.hpp"

namespace headroom::command {
namespace {

constexpr std::uint64_t kLongCallNs = 1'000'000'000;
constexpr std::size_t kMostThreads = 3;

[[nodiscard]] std::string doing(flight::InFlight operation) {
  switch (operation) {
    case flight::InFlight::allocating:
    case flight::InFlight::spending: return "allocating";
    case flight::InFlight::freeing: return "freeing";
    case flight::InFlight::reserving: return "reserving";
    case flight::InFlight::dropping: return "giving back a reservation of";
    case flight::InFlight::none: break;
  }
  return "working on";
}

[[nodiscard]] std::string thread_text(flight::InFlightOperation const& operation) {
  if (operation.thread_name.empty()) return "thread " + std::to_string(operation.thread);
  return "thread '" + printable(operation.thread_name) + "'";
}

[[nodiscard]] std::string age_text(Scene const& scene, flight::InFlightOperation const& operation) {
  auto const now = scene.model.source().now_ticks();
  auto const ns = now > operation.since_ticks ? scene.model.duration_ns(now - operation.since_ticks) : 0;
  return format_seconds(static_cast<double>(ns) * 1e-9);
}

[[nodiscard]] std::string when_text(Scene const& scene) {
  if (scene.living()) return "Right now ";
  if (scene.is_record_of_living()) return "When this was written, ";
  if (scene.process->state == "killed") return "When it died, ";
  return scene.process->state == "exited" ? "When it ended, " : "When it was last heard of, ";
}

}  // namespace

void explain_operations(Scene const& scene, Prose& prose) {
  if (!scene.process) return;
  auto operations = scene.model.source().in_flight();
  auto const now = scene.model.source().now_ticks();
  // What begins and ends all the time is no news of the living.
  std::erase_if(operations, [&](flight::InFlightOperation const& operation) {
    auto const since = now > operation.since_ticks ? scene.model.duration_ns(now - operation.since_ticks) : 0;
    return scene.living() && since < kLongCallNs;
  });
  if (operations.empty()) return;
  std::ranges::sort(operations, {}, [](flight::InFlightOperation const& one) { return std::pair{one.since_ticks, one.lane}; });
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(operations.size(), kMostThreads); ++i) {
    auto const& operation = operations[i];
    auto const* const verb = scene.living() ? " is " : i == 0 ? " was in the middle of " : " of ";
    auto text = thread_text(operation) + verb + doing(operation.operation) + ' ' + format_bytes_exact(operation.bytes);
    text += scene.living() ? ", and has been for " + age_text(scene, operation)
                           : ", begun at " + time_in_prose(scene, operation.since_ticks);
    parts.push_back(std::move(text));
  }
  if (operations.size() > kMostThreads) {
    auto const more = operations.size() - kMostThreads;
    auto const* const are = scene.living() ? more == 1 ? " is" : " are" : more == 1 ? " was" : " were";
    parts.push_back("and " + counted_in_words(more, "other thread") + are + " at work too");
  }
  auto text = when_text(scene);
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : "; ") + parts[i];
  if (scene.living()) {
    text += operations.size() == 1 ? ": a slow call of the driver, or a hang" : ": slow calls of the driver, or a hang";
  } else if (!scene.is_record_of_living()) {
    text += ": a call into the driver that never came back looks like this";
  }
  prose.say(std::move(text));
}

}  // namespace headroom::command
