#include <headroom/gpu_devices.hpp>

#include <utility>

#include "device/nvml_session.hpp"

namespace headroom {

using device::nvml::Session;

struct GpuSession::State {
  Session session;
};

GpuSession::GpuSession(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
GpuSession::GpuSession(GpuSession&& other) noexcept = default;
GpuSession& GpuSession::operator=(GpuSession&& other) noexcept = default;
GpuSession::~GpuSession() = default;

Result<GpuSession> GpuSession::open() {
  auto const table = device::nvml::loaded_table();
  if (!table) return tl::unexpected{table.error()};
  auto session = Session::open(**table);
  if (!session) return tl::unexpected{std::move(session.error())};
  return GpuSession{std::make_unique<State>(State{std::move(*session)})};
}

Result<std::vector<GpuDevice>> GpuSession::devices() const {
  if (state_ == nullptr) return fail(ErrorKind::invalid_argument, Layer::request, "the GPU session was moved from");
  return state_->session.devices();
}

Result<std::vector<GpuDevice>> gpu_devices() {
  auto const session = GpuSession::open();
  if (!session) return tl::unexpected{session.error()};
  return session->devices();
}

std::string_view to_string(MigMode mode) noexcept {
  switch (mode) {
    case MigMode::unknown: return "unknown";
    case MigMode::unsupported: return "unsupported";
    case MigMode::disabled: return "disabled";
    case MigMode::enabled: return "enabled";
  }
  return "unknown";
}

}  // namespace headroom
