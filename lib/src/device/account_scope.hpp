// headroom: naming an account's operation in progress for a post-mortem.
//
// A lane's in-flight word names one ledger, and its bytes count in the account above that ledger too. So an operation that came from a
// manager of this account is named already, and costs nothing here; any other one (a stack used without a manager, a reap) names itself.
#pragma once

#include <cstdint>
#include <optional>

#include "ledger/ledger.hpp"

namespace headroom::device {

class AccountScope {
public:
  AccountScope(flight::ThreadState& thread, ledger::Ledger& ledger, flight::InFlight operation, std::uint64_t bytes) noexcept;
  ~AccountScope();
  AccountScope(AccountScope const&) = delete;
  AccountScope& operator=(AccountScope const&) = delete;

private:
  [[nodiscard]] bool named_by_manager() const noexcept;
  [[nodiscard]] bool named_by_free() const noexcept;

  flight::ThreadState& thread_;
  ledger::Ledger& ledger_;
  flight::InFlight const operation_;
  std::uint64_t const bytes_;
  AccountScope* const outer_;  // the operation of an account that this thread is inside of
  // A return that the free around it names: that free's bytes are spoken for meanwhile. Null otherwise.
  AccountScope* borrowed_ = nullptr;
  bool lent_ = false;
  bool deeper_ = false;  // the depth was raised, so that whatever nests in here names itself
  std::optional<ledger::InFlightScope> own_;
};

}  // namespace headroom::device
