#include "manager/shortage.hpp"

#include <utility>

#include "device/guarded.hpp"
#include "device/second_try.hpp"

namespace headroom::manager {
namespace {

class AskRoute final : public device::SecondTry {
public:
  AskRoute(Request const& request, AllocRequest const& asked) noexcept : request_{request}, asked_{asked} {}

  [[nodiscard]] Result<Block> ask() noexcept override { return ask_for_block(request_.route.resource(), asked_); }
  void trimmed(std::uint64_t bytes) noexcept override {
    const flight::LaneSection section{request_.thread};
    request_.route.ledger().book_trim(section, bytes, request_.bytes, request_.alignment, request_.place);
  }
  [[nodiscard]] std::optional<std::uint64_t> free_now() const noexcept override {
    return request_.route.resource().memory_info().free;
  }

private:
  Request const& request_;
  AllocRequest const& asked_;
};

}  // namespace

Result<void> reap_all(DeviceResource& resource) noexcept {
  return device::guarded([&] { return resource.reap_pending(ReapMode::synchronize).map([](std::uint64_t) {}); });
}

Result<Block> ask_again_if_short(Request const& request, AllocRequest const& asked, Result<Block> block) noexcept {
  AskRoute again{request, asked};
  return device::ask_again_if_short(request.route.resource(), asked, std::move(block), again);
}

}  // namespace headroom::manager
