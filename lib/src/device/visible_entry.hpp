// One entry of CUDA_VISIBLE_DEVICES against the list of GPUs. The rules are those of <headroom/visible_devices.hpp>.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/gpu_devices.hpp>

namespace headroom::device {

enum class VisibleForm : std::uint8_t { index, gpu, mig };
enum class VisibleOutcome : std::uint8_t {
  resolved,  ///< it is `match`
  invalid,   ///< hides itself and all that follow
  unknown,   ///< `why`
};

struct VisibleEntry {
  VisibleForm form = VisibleForm::index;
  VisibleOutcome outcome = VisibleOutcome::invalid;
  std::optional<std::uint32_t> index{};  ///< of an index in range
  GpuMatch match{};
  std::string why{};
};

/// The GPUs in the order of CUDA's indices, as far as it is known.
class IndexOrder {
public:
  IndexOrder(std::span<GpuDevice const> gpus, std::optional<std::string> const& device_order);
  [[nodiscard]] std::size_t size() const noexcept { return gpus_.size(); }
  [[nodiscard]] VisibleEntry entry_of(std::uint32_t index) const;

private:
  std::span<GpuDevice const> gpus_;
  std::vector<std::size_t> order_;  // empty: unknown, `why_`
  std::size_t whole_ = 0;           // how many at the front are certainly not partitioned
  std::string why_;
};

/// `text` is what stands between two commas.
[[nodiscard]] VisibleEntry read_visible_entry(std::string_view text, std::span<GpuDevice const> gpus, IndexOrder const& order);

}  // namespace headroom::device
