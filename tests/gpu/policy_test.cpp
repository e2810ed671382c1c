// A guard on a real device that is really full: each policy, hooks that help or don't, and the same rows as on the host.
#include <headroom/byte_size.hpp>

#include "gpu_support.hpp"
#include "policy_table.hpp"

namespace headroom::gpu {
namespace {

// A card of 139 GiB is full after 34 of them, one of 8 GiB after one or two.
constexpr std::uint64_t kRequest = 4 * kGiB;
constexpr std::uint64_t kSmallRequest = 512 * kMiB;

class PolicyTable : public Gpu {
protected:
  static std::uint64_t request_for(Device const& device) {
    const auto free = device.resource().memory_info().free;
    return free && *free >= 8 * kRequest ? kRequest : kSmallRequest;
  }
  static void check(std::string const& how, Device const& device) {
    const test::TableDevice table{.device = device, .request_bytes = request_for(device)};
    test::print_and_check_policy_table(device.name() + ", " + how + ", requests of " + format_bytes(table.request_bytes),
                                       [&] { return table; });
    EXPECT_TRUE(ok(device.resource().reap_pending(ReapMode::synchronize)));
    EXPECT_EQ(device.resource().bytes_outstanding(), 0U);
  }
};

TEST_F(PolicyTable, over_cudaMalloc) { check("cudaMalloc", make_direct().device); }
TEST_F(PolicyTable, over_a_pool) { check("a pool", make_pool().device); }

}  // namespace
}  // namespace headroom::gpu
