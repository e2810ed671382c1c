#include "device/runtime_state.hpp"

#include <string>
#include <utility>

#include "device/guarded.hpp"
#include "flight/recorder.hpp"

namespace headroom::device {

RuntimeState::RuntimeState(Device device, std::shared_ptr<DeviceResource> stack, std::uint32_t max_streams)
    : parts_(std::make_unique<Parts>(std::move(device), std::move(stack))), max_streams_(max_streams) {}

RuntimeState::~RuntimeState() {
  if (flight::in_forked_child()) {
    // The device is the parent's, and what a resource's destructor does is not known here: it must not run.
    [[maybe_unused]] auto const* const kept = parts_.release();
    return;
  }
  for (auto const stream : idle_) {
    static_cast<void>(guarded([&] { return parts_->stack->destroy_stream(stream); }));
  }
}

std::uint32_t RuntimeState::streams_in_use() const noexcept {
  // Whoever held the lock at the fork does not exist in the child.
  if (flight::in_forked_child()) return 0;
  std::lock_guard const lock(mutex_);
  return in_use_;
}

Result<StreamId> RuntimeState::acquire() {
  {
    std::unique_lock lock(mutex_);
    if (!idle_.empty()) {
      auto const stream = idle_.back();
      idle_.pop_back();
      ++in_use_;
      return stream;
    }
    if (made_ == max_streams_) {
      lock.unlock();
      return all_in_use();
    }
    idle_.reserve(made_ + 1);  // so that giving back needs no memory
    ++made_;
    ++in_use_;
  }
  auto stream = make_stream();
  if (!stream) {
    std::lock_guard const lock(mutex_);
    --made_;
    --in_use_;
  }
  return stream;
}

void RuntimeState::give_back(StreamId stream) noexcept {
  if (flight::in_forked_child()) return;
  std::lock_guard const lock(mutex_);
  idle_.push_back(stream);
  --in_use_;
}

Result<StreamId> RuntimeState::make_stream() const {
  auto stream = guarded([&] { return parts_->stack->create_stream(); });
  if (stream && *stream == StreamId{}) {
    return fail(ErrorKind::stream_misuse, Layer::runtime,
                "the resource '" + std::string(parts_->stack->name()) + "' gave the default stream 0 instead of a new one");
  }
  return stream;
}

tl::unexpected<Error> RuntimeState::all_in_use() const {
  return fail(ErrorKind::stream_misuse, Layer::runtime,
              "all " + std::to_string(max_streams_) + " streams of the runtime of device '" + device().name() +
                  "' are in use (max_streams); give a lease back or raise the cap");
}

}  // namespace headroom::device
