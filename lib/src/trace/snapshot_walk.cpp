#include "trace/snapshot_walk.hpp"

#include <utility>

namespace headroom::trace {
namespace {

using pickle::Path;
using pickle::Type;
using pickle::Value;

constexpr std::string_view kSegments = "segments";
constexpr std::string_view kTraces = "device_traces";
constexpr std::string_view kAnnotations = "external_annotations";

[[nodiscard]] bool is_sequence(Value const& value) noexcept { return value.is(Type::list) || value.is(Type::tuple); }

}  // namespace

SnapshotWalk::SnapshotWalk(std::unique_ptr<ByteSource> bytes, std::string const& name, pickle::Reuse const& reuse, Walker& walker)
    : bytes_{std::move(bytes)}, name_{name}, walker_{walker}, machine_{*bytes_, name, reuse, *this} {}

Result<bool> SnapshotWalk::advance() {
  auto more = machine_.advance();
  if (!more || *more) return more;
  if (auto done = rest(); !done) return tl::unexpected{std::move(done.error())};
  return false;
}

bool SnapshotWalk::takes_items_of(Path const& list) {
  // The root, where the segments alone were kept, or a list of the root; of the traces, each device's.
  if (list.size() <= 1) return !list.is_key(0, kTraces);
  return list.size() == 2 && list.is_key(0, kTraces) && list.index(1).has_value();
}

Result<void> SnapshotWalk::item(Path const& item, Value const& value) {
  if (item.size() == 1) return walker_.segment(item.index(0).value_or(0) + 1, value);
  if (item.size() == 3) return entry(item.index(1).value_or(0), item.index(2).value_or(0), value);
  if (item.is_key(0, kSegments)) return walker_.segment(item.index(1).value_or(0) + 1, value);
  if (item.is_key(0, kAnnotations)) return walker_.annotation(value);
  return {};
}

Result<void> SnapshotWalk::entry(std::uint64_t device, std::uint64_t index, Value const& value) {
  if (device >= TraceReader::kMaxDevices) {
    return wrong(value, "an entry of device " + std::to_string(device) + "; expected devices below " +
                            std::to_string(TraceReader::kMaxDevices));
  }
  return walker_.entry({.device = static_cast<std::uint32_t>(device), .number = index + 1}, value);
}

/// What is wrong with the whole, and what no visitor was asked about: tuples, and lists that were in them or met in another way.
Result<void> SnapshotWalk::rest() {
  auto const& whole = root();
  std::uint64_t number = 0;
  if (whole.is(Type::list)) {
    for (auto const& item : whole.items()) {
      if (auto told = walker_.segment(++number, item); !told) return told;
    }
    return {};
  }
  if (!whole.is(Type::dict)) {
    return wrong(whole, "a pickle of " + std::string{kind_of(whole)} +
                            "; expected a memory snapshot of PyTorch: a dict with 'segments' and 'device_traces'");
  }
  auto const* const segments = whole.find(kSegments);
  auto const* const traces = whole.find(kTraces);
  if (segments == nullptr && traces == nullptr) {
    return wrong(whole, "a dict without 'segments' and 'device_traces'; expected a memory snapshot of PyTorch");
  }
  for (auto const* const list : {segments, traces}) {
    if (list == nullptr || is_sequence(*list)) continue;
    return wrong(
        *list, std::string{list == segments ? kSegments : kTraces} + " is " + std::string{kind_of(*list)} + "; expected a list");
  }
  if (segments != nullptr) {
    for (auto const& item : segments->items()) {
      if (auto told = walker_.segment(++number, item); !told) return told;
    }
  }
  std::uint64_t device = 0;
  if (traces != nullptr) {
    for (auto const& trace : traces->items()) {
      if (!is_sequence(trace)) {
        return wrong(
            trace, "the trace of device " + std::to_string(device) + " is " + std::string{kind_of(trace)} + "; expected a list");
      }
      std::uint64_t index = 0;
      for (auto const& value : trace.items()) {
        if (auto told = entry(device, index++, value); !told) return told;
      }
      ++device;
    }
  }
  if (auto const* const annotations = whole.find(kAnnotations); annotations != nullptr) {
    for (auto const& item : annotations->items()) {
      if (auto told = walker_.annotation(item); !told) return told;
    }
  }
  return {};
}

tl::unexpected<Error> SnapshotWalk::wrong(Value const& at, std::string const& what) const {
  return fail(ErrorKind::parse, Layer::request, name_ + ": byte " + std::to_string(at.offset()) + ": " + what);
}

}  // namespace headroom::trace
