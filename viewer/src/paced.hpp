// headroom: what a panel worked out about something that keeps changing: worked out again not at every change, but as often as it costs
// little: at most an eighth of the time goes into it, however much is live and however busy the program is.
//
//   Paced<Choice, Version, Rows> rows_;
//   auto const& rows = rows_.get(choice, version, [&] { return rows_of(…); });
//   if (rows_.is_behind()) state.touch();     // drawn again soon, and then with what is new
//
// What the person chose is answered at once. Where nothing changes, nothing is worked out. Thread safety: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace headroom::viewer {

template <typename Choice, typename Version, typename Value, typename Clock = std::chrono::steady_clock>
class Paced {
public:
  static constexpr int kShare = 8;

  /// Good until the next call.
  template <typename Make>
  Value const& get(Choice const& choice, Version const& version, Make&& make) {
    auto const is_other = !value_ || !(choice == choice_);
    is_behind_ = !is_other && !(version == version_);
    auto const begin = Clock::now();
    if (!is_other && (!is_behind_ || begin < next_)) return *value_;
    value_.reset();  // the old one's memory goes before the new one's is asked for
    value_.emplace(std::forward<Make>(make)());
    choice_ = choice;
    version_ = version;
    is_behind_ = false;
    ++made_;
    auto const end = Clock::now();
    next_ = end + (end - begin) * kShare;
    return *value_;
  }
  /// The last get() gave an older version than it was asked for.
  [[nodiscard]] bool is_behind() const noexcept { return is_behind_; }
  void forget() { value_.reset(); }
  /// How often it was worked out: for tests of what is idle.
  [[nodiscard]] std::uint64_t made() const noexcept { return made_; }

private:
  Choice choice_{};
  Version version_{};
  std::optional<Value> value_{};
  typename Clock::time_point next_{};
  std::uint64_t made_ = 0;
  bool is_behind_ = false;
};

}  // namespace headroom::viewer
