#include <headroom/launch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <string>
#include <utility>

#include <unistd.h>

#include "base/quiet_writing.hpp"
#include "base/thrown_error.hpp"
#include "device/guarded.hpp"
#include "flight/recorder.hpp"
#include "manager/block.hpp"
#include "manager/errors.hpp"
#include "manager/route.hpp"

namespace headroom {
namespace {

using device::guarded;

constexpr std::uint64_t kMostComplaints = 10;

// Written by whoever drops a prepared launch, read by anyone; relaxed: one figure that stands for itself.
std::atomic<std::uint64_t> unfinished{0};

Error misuse(std::string message) { return make_error(ErrorKind::invalid_argument, Layer::request, std::move(message)); }

// One line in one write, so that lines of several threads don't mix, and without the heap: this runs in destructors.
void complain(std::source_location const& site, std::uint64_t count) noexcept {
  std::array<char, 512> line{};
  const int length = std::snprintf(
      line.data(), line.size(),
      "headroom: %s:%u: a launch was prepared and never finished; its uses are recorded as if it ran%s\n", site.file_name(),
      static_cast<unsigned>(site.line()), count == kMostComplaints ? " (further ones are only counted)" : "");
  if (length <= 0) return;
  const QuietWriting quiet;  // a standard error whose reader has gone ends nobody
  const auto bytes = std::min(static_cast<std::size_t>(length), line.size() - 1);
  static_cast<void>(!write(STDERR_FILENO, line.data(), bytes));  // nobody is left to hear of a closed standard error
}

}  // namespace

Launch::Launch(DeviceRuntime runtime, StreamId stream, std::source_location const& site) noexcept
    : runtime_(std::move(runtime)), stream_(stream), site_(site) {}

Launch Launch::on(DeviceRuntime runtime, StreamId stream, std::source_location const& site) noexcept {
  return {std::move(runtime), stream, site};
}

Launch::Launch(Launch&& other) noexcept
    : runtime_(std::exchange(other.runtime_, std::nullopt)),
      stream_(other.stream_),
      site_(other.site_),
      uses_(std::move(other.uses_)),
      wrong_(std::exchange(other.wrong_, std::nullopt)),
      named_(other.named_),
      phase_(std::exchange(other.phase_, Phase::moved_from)) {}

Launch& Launch::operator=(Launch&& other) noexcept {
  if (this == &other) return *this;
  abandon();
  runtime_ = std::exchange(other.runtime_, std::nullopt);
  stream_ = other.stream_;
  site_ = other.site_;
  uses_ = std::move(other.uses_);
  wrong_ = std::exchange(other.wrong_, std::nullopt);
  named_ = other.named_;
  phase_ = std::exchange(other.phase_, Phase::moved_from);
  return *this;
}

Launch::~Launch() { abandon(); }

void Launch::note(Error error) noexcept {
  if (!wrong_) wrong_ = std::move(error);
}

Launch& Launch::name(manager::Allocation const& allocation, UseKind kind) noexcept {
  if (phase_ == Phase::moved_from || phase_ == Phase::finished) {
    note(misuse("a buffer was named after the launch was finished or moved from"));
    return *this;
  }
  named_ = true;
  if (allocation.route == nullptr) return *this;  // empty: there is no memory to keep in order
  DeviceRuntime const* const runtime = allocation.route->runtime();
  if (runtime == nullptr || *runtime != *runtime_) {
    note(make_error(ErrorKind::wrong_owner, Layer::request,
                    runtime == nullptr
                        ? "a buffer of the launch was allocated without a runtime: its uses cannot be ordered"
                        : "a buffer of the launch was allocated through another runtime, of the device '" +
                              runtime->device().name() + "', ordinal " + std::to_string(runtime->device().ordinal())));
    return *this;
  }
  if (phase_ != Phase::naming) note(misuse("a buffer was named after prepare: the launch does not wait for it"));
  const Block block = manager::block_of(allocation);
  const auto same = std::ranges::find_if(
      uses_, [&](Use const& use) { return use.block.pointer == block.pointer && use.block.generation == block.generation; });
  try {
    if (same == uses_.end()) {
      uses_.push_back({.block = block, .kind = kind});
    } else if (kind == UseKind::write) {
      same->kind = UseKind::write;
    }
  } catch (...) {
    note(make_error(ErrorKind::io, Layer::request, "no memory to name another buffer of the launch"));
  }
  return *this;
}

Result<void> Launch::prepare() {
  if (flight::in_forked_child()) return tl::unexpected{manager::forked_child_error()};
  switch (phase_) {
    case Phase::moved_from: return tl::unexpected{misuse("the launch was moved from")};
    case Phase::finish_failed:
    case Phase::prepared: return tl::unexpected{misuse("the launch is prepared already")};
    case Phase::finished: return tl::unexpected{misuse("the launch is finished: make a new one for the next")};
    case Phase::naming: break;
  }
  if (wrong_) return tl::unexpected{*wrong_};
  if (!named_) return tl::unexpected{misuse("the launch names no buffer: there is nothing to keep in order")};
  if (!runtime_->tracks_uses()) {
    return fail(ErrorKind::unsupported, Layer::runtime,
                "the stack '" + std::string{runtime_->stack().name()} + "' does not track uses");
  }
  for (auto const& use : uses_) {
    auto prepared = guarded([&] { return runtime_->stack().prepare_use(use.block, stream_, use.kind); });
    if (!prepared) return prepared;
  }
  phase_ = Phase::prepared;
  return {};
}

// Each use that was taken note of is closed; what fails stays open.
Result<void> Launch::finish_open_uses() noexcept {
  Result<void> first{};
  std::erase_if(uses_, [&](Use const& use) {
    auto finished = guarded([&] { return runtime_->stack().finish_use(use.block, stream_, use.kind); });
    const bool done = finished.has_value();
    if (!done && first) first = std::move(finished);
    return done;
  });
  return first;
}

Result<void> Launch::finish() {
  if (flight::in_forked_child()) return tl::unexpected{manager::forked_child_error()};
  switch (phase_) {
    case Phase::moved_from: return tl::unexpected{misuse("the launch was moved from")};
    case Phase::naming: return tl::unexpected{misuse("the launch was not prepared: nothing made its stream wait")};
    case Phase::finished: return tl::unexpected{misuse("the launch is finished already")};
    case Phase::finish_failed:
    case Phase::prepared: break;
  }
  auto finished = finish_open_uses();
  if (!finished) {
    phase_ = Phase::finish_failed;
    return finished;
  }
  phase_ = Phase::finished;
  if (wrong_) return tl::unexpected{*wrong_};
  return finished;
}

void Launch::abandon() noexcept {
  if (phase_ != Phase::prepared && phase_ != Phase::finish_failed) return;
  const bool was_forgotten = phase_ == Phase::prepared;
  phase_ = Phase::finished;
  // In a forked child the device is the parent's.
  if (flight::in_forked_child()) return;
  if (was_forgotten) {
    const std::uint64_t count = unfinished.fetch_add(1, std::memory_order_relaxed) + 1;
    if (count <= kMostComplaints) complain(site_, count);
  }
  static_cast<void>(finish_open_uses());
}

std::uint64_t Launch::unfinished_launches() noexcept { return unfinished.load(std::memory_order_relaxed); }

}  // namespace headroom
