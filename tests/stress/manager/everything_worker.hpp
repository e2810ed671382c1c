// One of the sixteen: does what its random numbers say, and knows what may come of it.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "everything_world.hpp"

namespace headroom::test {

enum class Operation : std::uint8_t {
  alloc,
  alloc_raw,
  door_alloc,
  free,
  free_of_another_thread,
  reserve,
  spend,
  drop,
  overlay,
  launch,
  reap,
  budget_change,
  retry,
  write_off,
  bad_request,
  look,
};
inline constexpr std::size_t kOperations = static_cast<std::size_t>(Operation::look) + 1;

struct Tally {
  std::array<std::uint64_t, kOperations> done{};
  std::array<std::uint64_t, kErrorKindCount> refused{};  ///< requests for memory, by what they met
  std::uint64_t failed_frees = 0;
  std::uint64_t failed_uses = 0;
  std::uint64_t retried = 0, written_off_bytes = 0;

  void add(Tally const& other) noexcept;
  [[nodiscard]] std::uint64_t operations() const noexcept;
  [[nodiscard]] std::string to_string() const;
};

class Worker {
public:
  Worker(World& world, unsigned seed) : world_{world}, random_{seed} {}
  /// One operation. Failures that may not be are reported to the test.
  void step();
  /// Frees all that waits on the shelf.
  void clear_shelf();
  /// Frees what it still holds.
  void finish();
  [[nodiscard]] Tally const& tally() const noexcept { return tally_; }

private:
  [[nodiscard]] std::uint64_t below(std::uint64_t end) { return random_() % end; }
  [[nodiscard]] Origin any_manager() { return static_cast<Origin>(below(kManagers)); }
  [[nodiscard]] std::uint64_t any_size();
  [[nodiscard]] AllocOptions any_options(Origin origin);
  void keep(Result<testing::Held> held, Origin origin);
  void count_refusal(Error const& error);

  void alloc();
  void alloc_raw();
  void door_alloc();
  void free_one();
  void free_of_another_thread();
  void reserve();
  void spend();
  void drop();
  void overlay();
  void launch();
  void reap();
  void budget_change();
  void retry();
  void write_off();
  void bad_request();
  void look();
  void give_back(Holding& holding);
  void give_back_to_door(testing::DoorBlock& block);

  World& world_;
  std::minstd_rand random_;
  std::vector<Holding> held_;
  Tally tally_;
};

}  // namespace headroom::test
