// headroom: one ledger's snapshot as samples. Pure functions, so that tests work out every value by hand.
#pragma once

#include <array>

#include <headroom/flight_reader.hpp>

#include "families.hpp"

namespace headroom::exporter {

/// Values of the label `policy`, by the number of the policy.
inline constexpr std::array<char const*, flight::kOomPolicyCount> kOomPolicyWords{"fail", "retry_after_free", "wait_and_retry",
                                                                                  "checkpoint_and_fail"};

/// `device` (its index as CUDA shows it) and `uuid` of a ledger; what is unknown is left out.
[[nodiscard]] Labels device_labels(Labels labels, flight::LedgerSnapshot const& ledger);

/// All samples of a manager; `labels` name it already.
void add_manager(Families& families, flight::LedgerSnapshot const& ledger, Labels const& labels);

/// A device account's two families; `labels` name the device.
void add_device_account(Families& families, flight::LedgerSnapshot const& ledger, Labels const& labels);

/// Total, free and foreign bytes of the ledger's device, as far as known; `labels` name the device.
void add_device_memory(Families& families, flight::LedgerSnapshot const& ledger, Labels const& labels);

}  // namespace headroom::exporter
