// headroom: a flight file that a command reads, and that somebody else may truncate meanwhile.
//
// A page that its file does not have any more would end the command by SIGBUS. Here it reads as zeros instead, readers take that as they
// take any damaged file, and afterwards it is known that what was read may be wrong: main() says so, and the exit status is that of broken
// input.
//
// Ownership: the view, and copies of it, are guarded as long as this is there. Thread safety: none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/flight_reader.hpp>

namespace headroom::command {

class GuardedFlight {
public:
  /// Errors: as FlightView::open; io when SIGBUS cannot be answered, or too many files are open.
  [[nodiscard]] static Result<GuardedFlight> open(std::string path);
  GuardedFlight(GuardedFlight&& other) noexcept;
  GuardedFlight& operator=(GuardedFlight&& other) noexcept;
  ~GuardedFlight();

  [[nodiscard]] flight::FlightView const& view() const noexcept { return view_; }
  /// True once something was read that is gone from the file.
  [[nodiscard]] bool was_truncated() const noexcept;

private:
  GuardedFlight(flight::FlightView view, std::shared_ptr<void const> guard) noexcept;
  void let_go() noexcept;

  flight::FlightView view_;
  std::shared_ptr<void const> guard_;  // null: moved from
};

/// What is said of such a file.
[[nodiscard]] std::string truncation_message(std::string const& path);
/// The files of that kind among those that were let go of.
[[nodiscard]] std::vector<std::string> const& truncated_flights() noexcept;

}  // namespace headroom::command
