// A resource that hands out the addresses that a test wrote down, whatever they are, and counts its calls.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <memory>

#include <headroom/device.hpp>
#include <headroom/manager.hpp>

namespace headroom::test {

class ScriptedResource final : public DeviceResource {
public:
  /// The next addresses, in order; after them, fresh ones from 2^45 on.
  void hand_out(std::initializer_list<std::uint64_t> addresses) { script_.assign(addresses); }
  /// Frees to refuse from now on.
  void refuse_frees(std::uint64_t count) noexcept { refusals_ = count; }
  [[nodiscard]] std::uint64_t allocations() const noexcept { return allocations_; }
  [[nodiscard]] std::uint64_t frees() const noexcept { return frees_; }  ///< asked for, refused ones included

  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override {
    ++allocations_;
    std::uint64_t address = next_ += std::uint64_t{1} << 20;
    if (!script_.empty()) {
      address = script_.front();
      script_.pop_front();
    }
    return Block{.pointer = std::bit_cast<void*>(address),
                 .bytes = request.bytes,
                 .alignment = request.alignment,
                 .stream = request.stream,
                 .generation = allocations_,
                 .tag = request.tag};
  }
  [[nodiscard]] Result<void> deallocate(Block const& /*block*/) override {
    ++frees_;
    if (refusals_ == 0) return {};
    --refusals_;
    return fail(ErrorKind::driver, Layer::driver, "a refusal by the script");
  }
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  [[nodiscard]] std::string_view name() const noexcept override { return "scripted"; }

private:
  std::deque<std::uint64_t> script_;
  std::uint64_t next_ = std::uint64_t{1} << 45;
  std::uint64_t refusals_ = 0;
  std::uint64_t allocations_ = 0;
  std::uint64_t frees_ = 0;
};

struct ScriptedManager {
  std::shared_ptr<ScriptedResource> resource;
  GpuMemoryManager manager;
};

inline ScriptedManager scripted_manager(std::string_view name = {}) {
  auto resource = std::make_shared<ScriptedResource>();
  auto device = Device::custom("scripted", resource).value();
  return {resource, GpuMemoryManager::create(device, MemoryBudget::unlimited(), name).value()};
}

}  // namespace headroom::test
