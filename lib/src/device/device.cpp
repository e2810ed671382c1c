#include <utility>

#include <headroom/device.hpp>

#include "base/pci_address.hpp"
#include "base/quoted.hpp"

namespace headroom {

struct Device::State {
  std::string name;
  std::shared_ptr<DeviceResource> resource;
  DeviceIdentity identity;
  DeviceKind kind;
};

Device::Device(std::shared_ptr<State const> state) noexcept : state_(std::move(state)) {}

Result<Device> Device::custom(std::string name, std::shared_ptr<DeviceResource> resource, std::int32_t ordinal, std::string uuid,
                              DeviceKind kind) {
  return custom(std::move(name), std::move(resource),
                DeviceIdentity{.ordinal = ordinal, .uuid = std::move(uuid), .pci_address = {}}, kind);
}

Result<Device> Device::custom(std::string name, std::shared_ptr<DeviceResource> resource, DeviceIdentity identity,
                              DeviceKind kind) {
  if (resource == nullptr) {
    return fail(ErrorKind::invalid_argument, Layer::request, "the device '" + name + "' needs a resource, got none");
  }
  if (!identity.pci_address.empty()) {
    const auto address = parse_pci_address(identity.pci_address);
    if (!address) {
      return fail(ErrorKind::invalid_argument, Layer::request,
                  "the device '" + name + "' has the PCI address " + in_quotes(identity.pci_address) +
                      ", expected one such as 0000:65:00.0, or none");
    }
    identity.pci_address = to_string(*address);
  }
  return Device(std::make_shared<State const>(State{std::move(name), std::move(resource), std::move(identity), kind}));
}

DeviceKind Device::kind() const noexcept { return state_->kind; }
std::int32_t Device::ordinal() const noexcept { return state_->identity.ordinal; }
std::string const& Device::name() const noexcept { return state_->name; }
std::string const& Device::uuid() const noexcept { return state_->identity.uuid; }
std::string const& Device::pci_address() const noexcept { return state_->identity.pci_address; }
DeviceResource& Device::resource() const noexcept { return *state_->resource; }
std::shared_ptr<DeviceResource> const& Device::shared_resource() const noexcept { return state_->resource; }
MemoryInfo Device::memory_info() const noexcept { return state_->resource->memory_info(); }

}  // namespace headroom
