// headroom: everything a program needs to allocate through it. Exporters and readers have headers of their own.
// Layer: dump
#pragma once

#include <headroom/budget.hpp>
#include <headroom/buffer.hpp>
#include <headroom/byte_size.hpp>
#include <headroom/cuda_resource.hpp>
#include <headroom/device.hpp>
#include <headroom/device_account.hpp>
#include <headroom/error.hpp>
#include <headroom/fault_resource.hpp>
#include <headroom/flight_publish.hpp>
#include <headroom/gpu_devices.hpp>
#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/launch.hpp>
#include <headroom/log_follower.hpp>
#include <headroom/log_sink.hpp>
#include <headroom/logging_resource.hpp>
#include <headroom/manager.hpp>
#include <headroom/null_resource.hpp>
#include <headroom/post_mortem.hpp>
#include <headroom/pressure.hpp>
#include <headroom/raw_door.hpp>
#include <headroom/reservation.hpp>
#include <headroom/resource_decorator.hpp>
#include <headroom/runtime.hpp>
#include <headroom/tag.hpp>
#include <headroom/visible_devices.hpp>
