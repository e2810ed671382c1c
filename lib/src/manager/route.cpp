#include "manager/route.hpp"

#include "manager/core.hpp"

namespace headroom::manager {

void Route::add_handle() noexcept {
  if (handles_.fetch_add(1, std::memory_order_acq_rel) == 0) core_.add_route_in_use();
}

void Route::drop_handle() noexcept {
  if (handles_.fetch_sub(1, std::memory_order_seq_cst) == 1) core_.leave(*this);
}

bool Route::has_live() const noexcept {
  std::uint64_t sum = 0;
  for (auto const& place : *live_) sum += place.count.load(std::memory_order_seq_cst);
  return sum != 0;
}

}  // namespace headroom::manager
