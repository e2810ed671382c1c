// headroom: what all stacks of one physical device share: a ledger, and whom to ask for pending frees.
//
// Cores live as long as the process: frees that are pending on a stream point at the core that will get their bytes, and it may be a
// later life of the stack that reaps them. A closed core is used again once nothing is claimed, or once a device that was an object of
// this process is gone with all that was in it; one whose device comes back earlier is opened again with what is still out.
//
// Thread safety: every member, from any thread. The registry's mutex guards who has a seat, `stacks_mutex_` the list of stacks; neither
// is held over a call into a resource.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <headroom/budget.hpp>
#include <headroom/device.hpp>

#include "flight/recorder.hpp"
#include "ledger/ledger.hpp"

namespace headroom::device {

class AccountCore final : public ReturnSink {
public:
  AccountCore(AccountCore const&) = delete;
  AccountCore& operator=(AccountCore const&) = delete;
  virtual ~AccountCore() = default;  // never called: see above

  /// A seat at the account of the device below `inner`; `device` names it. Errors: as GlobalDeviceBudget::create.
  [[nodiscard]] static Result<AccountCore*> join(Device const& device, MemoryBudget budget,
                                                 std::shared_ptr<DeviceResource> const& inner);
  /// The end of a seat. The last one closes the account.
  void leave(std::weak_ptr<DeviceResource> const& inner) noexcept;

  [[nodiscard]] ledger::Ledger& ledger() noexcept { return ledger_; }
  [[nodiscard]] ledger::Ledger const& ledger() const noexcept { return ledger_; }
  [[nodiscard]] std::string const& name() const noexcept { return name_; }

  /// Memory is the device's again: no longer pending, allocated or claimed.
  void returned(std::uint64_t bytes) noexcept override;
  /// A free is on its way below: its bytes are pending from before the call on, since another thread may reap it during the call.
  void begin_free(std::uint64_t bytes) noexcept;
  void undo_free(std::uint64_t bytes) noexcept;
  [[nodiscard]] std::uint64_t pending_free_bytes() const noexcept;

  /// Frees under way at one instant, for a shortage that looks at the claim word between two looks at this one.
  struct FreesUnderWay {
    std::uint64_t bytes = 0;  ///< on their way below, pending there, or on their way back: claimed still, and live no more
    std::uint64_t ended = 0;  ///< how many have ended, in 20 bits
  };
  [[nodiscard]] FreesUnderWay frees_under_way() const noexcept;

  /// What became of a claim that had to make room first.
  struct Attempt {
    ledger::ClaimResult claim;
    std::optional<Error> reap_failure;  ///< why not all was tried
  };
  using Claim = ledger::ClaimResult (ledger::Ledger::*)(std::uint64_t) noexcept;
  /// After `claim` was refused once: reaps what has finished; then, as long as pending frees can make `bytes` fit, waits for them.
  [[nodiscard]] Attempt claim_after_reaping(std::uint64_t bytes, Claim claim);

private:
  struct Key {
    std::string uuid;
    DeviceResource const* bottom = nullptr;
    friend bool operator==(Key const& a, Key const& b) noexcept {
      return a.uuid == b.uuid && (!a.uuid.empty() || a.bottom == b.bottom);
    }
  };
  struct Opening {
    Device const& device;
    Key key;
    MemoryBudget budget = MemoryBudget::unlimited();
    std::optional<std::uint64_t> device_total{};
    std::weak_ptr<DeviceResource> bottom{};
  };
  struct Reaped {
    std::uint64_t bytes = 0;
    std::optional<Error> failure;
  };
  struct Registry;
  static Registry& registry();

  AccountCore() = default;
  static AccountCore& find_or_open(Registry& all, Opening const& opening);
  void open(Opening const& opening, std::uint32_t cell);
  void open_again(Opening const& opening);
  [[nodiscard]] bool device_still_there() const noexcept { return !key_.uuid.empty() || !bottom_.expired(); }
  [[nodiscard]] bool can_be_used_again() const noexcept;
  [[nodiscard]] Reaped reap(ReapMode mode);
  void end_free(std::uint64_t bytes) noexcept;
  [[nodiscard]] std::vector<std::shared_ptr<DeviceResource>> stacks() const;

  // Guarded by the registry's mutex; the name is constant while the account is open.
  Key key_;
  std::weak_ptr<DeviceResource> bottom_;  // of the newest user: tells whether an object that is its own key still exists
  MemoryBudget budget_ = MemoryBudget::unlimited();
  std::uint32_t seats_ = 0;
  std::string name_;

  ledger::Ledger ledger_;
  // FreesUnderWay in one word: ended (20) | bytes (44). Written by whoever frees and by whoever reaps, read by shortages. The published
  // pending word cannot serve them: its bytes leave it before they leave the claim (the books' order), and a free that came and went
  // between two looks at it is seen by neither. acq_rel and acquire: who sees a free ended sees its bytes gone from the claim, and who
  // sees a claim made after a free sees that free.
  alignas(64) std::atomic<std::uint64_t> frees_under_way_{0};
  mutable std::mutex stacks_mutex_;                      // guards what follows
  std::vector<std::weak_ptr<DeviceResource>> stacks_{};  // one for each seat
};

}  // namespace headroom::device
