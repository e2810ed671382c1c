// headroom: long answers that many clients take without a copy for each, in room that is bounded.
//
// A client that does not read what it asked for keeps it. So there is room for so many bytes; whoever wants more takes answers back:
// first those of which nobody has taken a piece for `stall`, after `age` any, the oldest first, and no more than it needs. The
// connections of their clients end. A client that reads has what it asked for in a fraction of that.
//
// Ownership: a body keeps its room; it gives its bytes back when the last who has it lets go. Thread safety: every member from any
// thread. The lock of a room is held for counting, and while connections are told to end (which waits for nobody), never while anything
// is made or sent.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace headroom::exporter {

class SharedBody;

class BodyRoom : public std::enable_shared_from_this<BodyRoom> {
public:
  struct Limits {
    std::size_t bytes = std::size_t{24} << 20U;  ///< of all bodies, or one body if that has more
    std::chrono::milliseconds stall{1'000};      ///< that nobody took a piece of one
    std::chrono::milliseconds age{5'000};        ///< of one, whoever takes it
    std::chrono::milliseconds patience{8'000};   ///< of who waits for room
  };
  explicit BodyRoom(Limits limits) noexcept : limits_(limits) {}

  /// Waits until there is room for so many bytes more; false when patience ended before. One thread at a time, and then put().
  [[nodiscard]] bool wait_for(std::size_t bytes);
  [[nodiscard]] std::shared_ptr<SharedBody> put(std::string bytes, bool is_packed);
  /// Of all bodies that somebody has.
  [[nodiscard]] std::size_t bytes() const;

private:
  friend class SharedBody;
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] bool has_room(std::size_t held, std::size_t wanted) const noexcept {
    return held == 0 || (wanted <= limits_.bytes && held <= limits_.bytes - wanted);
  }
  [[nodiscard]] Clock::time_point take_back(std::size_t wanted, Clock::time_point now);

  Limits const limits_;
  mutable std::mutex mutex_;  // guards the rest, and what bodies say it guards
  std::condition_variable freed_;
  std::list<SharedBody*> bodies_;  // oldest first; each leaves the list before it ends
  std::size_t bytes_ = 0;
};

class SharedBody {
public:
  /// For BodyRoom::put().
  SharedBody(std::shared_ptr<BodyRoom> room, std::string bytes, bool is_packed);
  ~SharedBody();
  SharedBody(SharedBody const&) = delete;
  SharedBody& operator=(SharedBody const&) = delete;

  [[nodiscard]] std::string_view bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool is_packed() const noexcept { return is_packed_; }

  /// A client that is being sent it, for as long as this lives.
  class Taker {
  public:
    /// `end` is called at most once, when the body is taken back (at once if it was), under the room's lock: it must make whatever the
    /// taker waits for end, and wait for nothing itself.
    Taker(std::shared_ptr<SharedBody> body, std::function<void()> end);
    ~Taker();
    Taker(Taker const&) = delete;
    Taker& operator=(Taker const&) = delete;

    [[nodiscard]] std::string_view bytes() const noexcept { return body_->bytes(); }
    /// The client has taken a piece.
    void note_progress() noexcept;
    /// It was taken back: nothing more of it may be sent.
    [[nodiscard]] bool is_over() const noexcept;

  private:
    friend class BodyRoom;
    std::shared_ptr<SharedBody> body_;
    std::function<void()> end_;
  };

private:
  friend class BodyRoom;
  std::shared_ptr<BodyRoom> room_;
  std::string bytes_;
  std::size_t const size_;
  bool const is_packed_;
  BodyRoom::Clock::time_point const made_ = BodyRoom::Clock::now();
  std::list<Taker*> takers_;  // guarded by the room's lock
  // Written by whoever sends a piece, read by whoever wants room; relaxed: it stands for itself.
  std::atomic<BodyRoom::Clock::time_point> progress_{made_};
  std::atomic<bool> is_taken_back_{false};  // written under the room's lock, read by takers; relaxed: a hint to stop
};

}  // namespace headroom::exporter
