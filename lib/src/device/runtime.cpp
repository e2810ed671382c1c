#include <headroom/runtime.hpp>

#include <string>
#include <utility>

#include "device/guarded.hpp"
#include "device/runtime_state.hpp"
#include "flight/recorder.hpp"

namespace headroom {

using device::RuntimeState;

namespace {

// No stack is that deep: one that is decorates itself.
constexpr int kDeepestStack = 64;

/// The resource that ends in a driver; null when the stack has no end.
DeviceResource const* bottom_of(DeviceResource const& stack) noexcept {
  auto const* resource = &stack;
  for (int depth = 0; depth < kDeepestStack; ++depth) {
    auto const* const inner = resource->inner();
    if (inner == nullptr) return resource;
    resource = inner;
  }
  return nullptr;
}

std::string described(DeviceResource const& bottom) {
  auto const uuid = bottom.device_uuid();
  return "'" + std::string(bottom.name()) + "'" + (uuid.empty() ? "" : " (" + std::string(uuid) + ")");
}

tl::unexpected<Error> endless(std::string const& whose) {
  return fail(ErrorKind::invalid_argument, Layer::runtime,
              whose + " does not end within " + std::to_string(kDeepestStack) + " resources, as if one decorated itself");
}

Result<void> check_stack(Device const& device, DeviceResource const& stack) {
  auto const* const own = bottom_of(device.resource());
  if (own == nullptr) return endless("the resource of device '" + device.name() + "'");
  auto const* const given = bottom_of(stack);
  if (given == nullptr) return endless("the stack '" + std::string(stack.name()) + "'");
  auto const both_named = !own->device_uuid().empty() && !given->device_uuid().empty();
  if (both_named ? own->device_uuid() == given->device_uuid() : own == given) return success();
  return fail(ErrorKind::invalid_argument, Layer::runtime,
              "the stack '" + std::string(stack.name()) + "' ends in " + described(*given) +
                  ", which is another physical device than that of '" + device.name() + "', " + described(*own));
}

Error forked_child_error() {
  return make_error(ErrorKind::unsupported, Layer::runtime,
                    "this process is a forked child: the device and its streams belong to its parent; exec, or work there");
}

}  // namespace

StreamLease::StreamLease(std::shared_ptr<RuntimeState> state, StreamId stream) noexcept
    : state_(std::move(state)), stream_(stream) {}

StreamLease::StreamLease(StreamLease&& other) noexcept
    : state_(std::move(other.state_)), stream_(std::exchange(other.stream_, {})) {}

StreamLease& StreamLease::operator=(StreamLease&& other) noexcept {
  // By way of a third, so that assigning a lease to itself gives nothing back.
  StreamLease taken(std::move(other));
  std::swap(state_, taken.state_);
  std::swap(stream_, taken.stream_);
  return *this;
}

StreamLease::~StreamLease() {
  if (state_ != nullptr) state_->give_back(stream_);
}

DeviceRuntime::DeviceRuntime(std::shared_ptr<RuntimeState> state) noexcept : state_(std::move(state)) {}

Result<DeviceRuntime> DeviceRuntime::create(Device device, RuntimeOptions options) {
  // Its fork handler is what tells a child that device and streams are not its own.
  if (!flight::start_recorder()) {
    return fail(ErrorKind::io, Layer::runtime, "the system has no memory for the books (about 16 MiB)");
  }
  if (flight::in_forked_child()) return tl::make_unexpected(forked_child_error());
  auto stack = std::move(options.stack);
  if (stack == nullptr) stack = device.shared_resource();
  if (auto fits = check_stack(device, *stack); !fits) return tl::make_unexpected(std::move(fits.error()));
  return DeviceRuntime(std::make_shared<RuntimeState>(std::move(device), std::move(stack), options.max_streams));
}

Device const& DeviceRuntime::device() const noexcept { return state_->device(); }
DeviceResource& DeviceRuntime::stack() const noexcept { return *state_->stack(); }
std::shared_ptr<DeviceResource> const& DeviceRuntime::shared_stack() const noexcept { return state_->stack(); }
bool DeviceRuntime::tracks_uses() const noexcept { return state_->stack()->tracks_uses(); }
std::optional<BudgetSnapshot> DeviceRuntime::budget_snapshot() const noexcept { return state_->stack()->budget_snapshot(); }

Result<StreamLease> DeviceRuntime::acquire_stream() {
  if (flight::in_forked_child()) return tl::make_unexpected(forked_child_error());
  auto stream = state_->acquire();
  if (!stream) return tl::make_unexpected(std::move(stream.error()));
  return StreamLease(state_, *stream);
}

std::uint32_t DeviceRuntime::streams_in_use() const noexcept { return state_->streams_in_use(); }
std::uint32_t DeviceRuntime::max_streams() const noexcept { return state_->max_streams(); }

Result<void> DeviceRuntime::synchronize(StreamId stream) {
  if (flight::in_forked_child()) return tl::make_unexpected(forked_child_error());
  return device::guarded([&] { return state_->stack()->synchronize_stream(stream); });
}

Result<std::uint64_t> DeviceRuntime::reap_pending(ReapMode mode) {
  if (flight::in_forked_child()) return tl::make_unexpected(forked_child_error());
  return device::guarded([&] { return state_->stack()->reap_pending(mode); });
}

}  // namespace headroom
