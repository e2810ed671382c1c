#include <utility>

#include <headroom/device.hpp>

namespace headroom {

struct Device::State {
  std::string name;
  std::shared_ptr<DeviceResource> resource;
  std::int32_t ordinal;
  std::string uuid;
  DeviceKind kind;
};

Device::Device(std::shared_ptr<State const> state) noexcept : state_(std::move(state)) {}

Result<Device> Device::custom(std::string name, std::shared_ptr<DeviceResource> resource, std::int32_t ordinal, std::string uuid,
                              DeviceKind kind) {
  if (resource == nullptr) {
    return fail(ErrorKind::invalid_argument, Layer::request, "the device '" + name + "' needs a resource, got none");
  }
  return Device(std::make_shared<State const>(State{std::move(name), std::move(resource), ordinal, std::move(uuid), kind}));
}

DeviceKind Device::kind() const noexcept { return state_->kind; }
std::int32_t Device::ordinal() const noexcept { return state_->ordinal; }
std::string const& Device::name() const noexcept { return state_->name; }
std::string const& Device::uuid() const noexcept { return state_->uuid; }
DeviceResource& Device::resource() const noexcept { return *state_->resource; }
std::shared_ptr<DeviceResource> const& Device::shared_resource() const noexcept { return state_->resource; }
MemoryInfo Device::memory_info() const noexcept { return state_->resource->memory_info(); }

}  // namespace headroom
