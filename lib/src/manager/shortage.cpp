#include "manager/shortage.hpp"

#include <utility>

#include "device/guarded.hpp"
#include "device/second_try.hpp"

namespace headroom::manager {
namespace {

class AskRoute final : public device::SecondTry {
public:
  AskRoute(Route& route, AllocRequest const& asked, flight::TagPlace place) noexcept
      : route_{route}, asked_{asked}, place_{place} {}

  [[nodiscard]] Result<Block> ask() noexcept override { return ask_for_block(route_.resource(), asked_); }
  void trimmed(std::uint64_t bytes) noexcept override {
    const flight::LaneSection section{flight::this_thread()};
    route_.ledger().book_trim(section, bytes, asked_.bytes, asked_.alignment, place_);
  }
  [[nodiscard]] std::optional<std::uint64_t> free_now() const noexcept override { return route_.resource().memory_info().free; }

private:
  Route& route_;
  AllocRequest const& asked_;
  flight::TagPlace place_;
};

}  // namespace

Result<void> reap_all(DeviceResource& resource) noexcept {
  return device::guarded([&] { return resource.reap_pending(ReapMode::synchronize).map([](std::uint64_t) {}); });
}

std::uint64_t trim_all(DeviceResource& resource) noexcept {
  return device::guarded([&] { return resource.trim(0); }).value_or(0);
}

Result<Block> ask_again_if_short(Route& route, AllocRequest const& asked, flight::TagPlace place, Result<Block> block) noexcept {
  AskRoute again{route, asked, place};
  return device::ask_again_if_short(route.resource(), asked, std::move(block), again);
}

}  // namespace headroom::manager
