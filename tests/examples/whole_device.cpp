#include <headroom/headroom.hpp>

#include <cstdio>

int main() {
  // [readme]
  auto device = headroom::host_device({.total_bytes = 1 << 30, .stream_ordered = true}).value();
  auto log = headroom::LoggingResource::create(device.shared_resource(), "serving").value();
  auto stack = headroom::GlobalDeviceBudget::create(device, headroom::MemoryBudget::with_limit(768 << 20), log).value();
  auto runtime = headroom::DeviceRuntime::create(device, {.stack = stack}).value();
  auto model =
      headroom::GpuMemoryManager::with_runtime(device, headroom::MemoryBudget::with_limit(512 << 20), runtime, "model").value();

  auto request = model.reserve_bytes(64 << 20).value();  // claimed in both budgets, or in none; no memory is touched yet
  auto keys = request.alloc<float>(1 << 20).value();     // paid for already: cannot be refused by a budget

  auto stream = runtime.acquire_stream().value();  // not the stream of `keys`: say what is used there
  auto launch = headroom::Launch::on(runtime, stream.id());
  launch.writes(keys);
  if (!launch.prepare()) return 1;  // the stream now waits for what must come first
  /* … enqueue the work … */
  if (!launch.finish()) return 1;  // and a later free waits for that work

  auto door = headroom::RawDoor::create(model).value();  // for code that knows only pointers
  void* scratch = door.allocate(4096, 256, {}).value();
  if (!door.deallocate(scratch, 4095)) std::puts("refused: it has 4096 bytes");
  if (!door.deallocate(scratch, 4096)) return 1;
  // [readme]
  keys = {};
  request.release();
  return runtime.reap_pending() && model.audit().clean() && stack->account().claimed_bytes() == 0 ? 0 : 1;
}
