// The route behind a manager's handle, for what stands upon managers: it lives as long as the process, and is open as long as the
// handle.
#pragma once

#include <headroom/manager.hpp>

#include "manager/route.hpp"

namespace headroom::manager {

struct RouteAccess {
  [[nodiscard]] static Route& of(GpuMemoryManager const& manager) noexcept { return *manager.route_; }
};

}  // namespace headroom::manager
