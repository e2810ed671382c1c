// headroom: one client's connection, with deadlines.
//
// cpp-httplib's timeouts are for each read, so a client that drips a byte each half second holds its worker for ever. Here the
// whole head of a request is read first, against one deadline, and only then given to the parser, as memory. Reading it first
// also bounds its size and keeps a thread that waits for a client recognisable: the server may end such a one for the next
// client.
//
// Thread safety: used by its own thread; phase() and interrupt() by the server's, too.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "listener.hpp"
#include "tls.hpp"

namespace headroom::exporter {

using Clock = std::chrono::steady_clock;

inline constexpr std::chrono::seconds kRequestLimit{5};    ///< from accept, or from the first byte of a later request, to its end
inline constexpr std::chrono::seconds kIdleLimit{5};       ///< between two requests of a connection
inline constexpr std::chrono::seconds kResponseLimit{10};  ///< to take a response
inline constexpr std::uint64_t kLeastBytesPerSecond = std::uint64_t{256} * 1024;  ///< that a client takes of a long response
inline constexpr std::size_t kHeadBytes = std::size_t{32} * 1024;

enum class Phase : std::uint8_t { waiting, answering, sending };
enum class Head : std::uint8_t { complete, closed, too_late, too_large };

class Connection {
public:
  explicit Connection(FileDescriptor socket) noexcept : socket_(std::move(socket)) {}

  /// From here on everything is encrypted; the handshake has the time of a first request. False when the client would have none of it.
  [[nodiscard]] bool secure(std::unique_ptr<TlsSession> session);
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

  /// Reads up to the empty line that ends a request's head. `is_first`: the time runs from accept, not from the first byte.
  [[nodiscard]] Head read_head(std::string& head, bool is_first);
  /// False when the client went away or took too long.
  [[nodiscard]] bool send(const char* data, std::size_t size);
  /// Ends our half and swallows a little of what still arrives: closing with unread bytes would reset the connection, and the
  /// client might never see the answer.
  void finish();

  void begin_answer();  ///< the response's time runs from here
  /// The answer is that long: its client has as much more time as kLeastBytesPerSecond takes.
  void expect(std::uint64_t bytes) noexcept;
  [[nodiscard]] Phase phase() const noexcept { return phase_.load(std::memory_order_relaxed); }
  [[nodiscard]] Clock::time_point accepted() const noexcept { return accepted_; }
  /// Makes every wait of this connection end at once. Only while the descriptor is known to be open.
  void interrupt() noexcept;
  void close() noexcept { socket_.reset(); }

private:
  enum class Received : std::uint8_t { some, ended, too_late };
  [[nodiscard]] Received receive(char* into, std::size_t size, Clock::time_point deadline, std::size_t& count);
  [[nodiscard]] bool send_encrypted(const char* data, std::size_t size);

  FileDescriptor socket_;
  std::unique_ptr<TlsSession> tls_;  // null: plain
  Clock::time_point accepted_ = Clock::now();
  Clock::time_point response_deadline_{};
  std::string unread_;                        // bytes of a request after this one
  std::atomic<Phase> phase_{Phase::waiting};  // written by the connection's thread, read by the server's as a hint; relaxed
};

}  // namespace headroom::exporter
