#include "connection.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <poll.h>
#include <sys/socket.h>

namespace headroom::exporter {
namespace {

/// Waits until the socket is ready or the deadline is over; true when it is ready (or broken: the next call will tell).
bool wait_for(int socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd entry{socket, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

/// How many bytes the head has, its empty line included; 0 while it is not complete. Lines may end in a bare newline.
std::size_t head_length(std::string const& bytes, std::size_t search_from) {
  for (auto line_end = bytes.find('\n', search_from); line_end != std::string::npos; line_end = bytes.find('\n', line_end + 1)) {
    if (bytes.compare(line_end + 1, 1, "\n") == 0) return line_end + 2;
    if (bytes.compare(line_end + 1, 2, "\r\n") == 0) return line_end + 3;
  }
  return 0;
}

}  // namespace

bool Connection::secure(std::unique_ptr<TlsSession> session) {
  if (!session) return false;
  tls_ = std::move(session);
  const auto deadline = accepted_ + kRequestLimit;
  for (;;) {
    switch (tls_->handshake()) {
      case TlsStep::done: return true;
      case TlsStep::ended: return false;
      case TlsStep::must_read:
        if (!wait_for(socket_.get(), POLLIN, deadline)) return false;
        break;
      case TlsStep::must_write:
        if (!wait_for(socket_.get(), POLLOUT, deadline)) return false;
        break;
    }
  }
}

/// Some bytes, at least one.
Connection::Received Connection::receive(char* into, std::size_t size, Clock::time_point deadline, std::size_t& count) {
  short events = POLLIN;
  for (;;) {
    const bool is_there = tls_ && tls_->has_pending() && events == POLLIN;
    // Who keeps sending is bound to the deadline like who does not.
    if (is_there ? Clock::now() >= deadline : !wait_for(socket_.get(), events, deadline)) return Received::too_late;
    if (tls_) {
      const auto progress = tls_->read(into, size);
      count = progress.bytes;
      switch (progress.step) {
        case TlsStep::done: return Received::some;
        case TlsStep::ended: return Received::ended;
        case TlsStep::must_read:
          events = POLLIN;
          // Part of a record: what is pending is not enough, and more must come from the socket.
          if (is_there && !wait_for(socket_.get(), POLLIN, deadline)) return Received::too_late;
          break;
        case TlsStep::must_write: events = POLLOUT; break;
      }
      continue;
    }
    const auto received = recv(socket_.get(), into, size, 0);
    if (received < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (received <= 0) return Received::ended;
    count = static_cast<std::size_t>(received);
    return Received::some;
  }
}

Head Connection::read_head(std::string& head, bool is_first) {
  phase_.store(Phase::waiting, std::memory_order_relaxed);
  head.clear();
  std::string bytes = std::exchange(unread_, {});
  auto deadline = is_first ? accepted_ + kRequestLimit : Clock::now() + (bytes.empty() ? kIdleLimit : kRequestLimit);
  bool has_begun = is_first || !bytes.empty();
  std::size_t searched = 0;
  for (;;) {
    // An end may lie across two reads, so the last three bytes are looked at again.
    if (const auto length = head_length(bytes, searched); length != 0 && length <= kHeadBytes) {
      unread_ = bytes.substr(length);
      bytes.resize(length);
      head = std::move(bytes);
      return Head::complete;
    }
    searched = bytes.size() < 3 ? 0 : bytes.size() - 3;
    if (bytes.size() >= kHeadBytes) return Head::too_large;

    std::array<char, 4096> chunk{};
    std::size_t count = 0;
    switch (receive(chunk.data(), chunk.size(), deadline, count)) {
      case Received::too_late: return has_begun && !bytes.empty() ? Head::too_late : Head::closed;
      case Received::ended: return Head::closed;
      case Received::some: break;
    }
    bytes.append(chunk.data(), count);
    if (!has_begun) {
      has_begun = true;
      deadline = Clock::now() + kRequestLimit;
    }
  }
}

void Connection::begin_answer() {
  response_deadline_ = Clock::now() + kResponseLimit;
  phase_.store(Phase::answering, std::memory_order_relaxed);
}

bool Connection::send_encrypted(const char* data, std::size_t size) {
  while (size > 0) {
    const auto progress = tls_->write(data, size);
    switch (progress.step) {
      case TlsStep::done:
        data += progress.bytes;
        size -= progress.bytes;
        break;
      case TlsStep::ended: return false;
      case TlsStep::must_read:
        if (!wait_for(socket_.get(), POLLIN, response_deadline_)) return false;
        break;
      case TlsStep::must_write:
        if (!wait_for(socket_.get(), POLLOUT, response_deadline_)) return false;
        break;
    }
  }
  return true;
}

void Connection::expect(std::uint64_t bytes) noexcept {
  response_deadline_ += std::chrono::seconds{bytes / kLeastBytesPerSecond};
}

bool Connection::send(const char* data, std::size_t size) {
  phase_.store(Phase::sending, std::memory_order_relaxed);
  if (tls_) return send_encrypted(data, size);
  while (size > 0) {
    const auto count = ::send(socket_.get(), data, size, MSG_NOSIGNAL);
    if (count >= 0) {
      data += count;
      size -= static_cast<std::size_t>(count);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !wait_for(socket_.get(), POLLOUT, response_deadline_)) return false;
  }
  return true;
}

void Connection::finish() {
  constexpr std::chrono::milliseconds kGrace{500};
  constexpr std::size_t kSwallowedBytes = std::size_t{1024} * 1024;
  phase_.store(Phase::waiting, std::memory_order_relaxed);
  if (tls_) tls_->close();
  (void)shutdown(socket_.get(), SHUT_WR);
  const auto deadline = Clock::now() + kGrace;
  std::array<char, 16384> chunk{};
  for (std::size_t swallowed = 0; swallowed < kSwallowedBytes && wait_for(socket_.get(), POLLIN, deadline);) {
    const auto count = recv(socket_.get(), chunk.data(), chunk.size(), 0);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return;
    swallowed += static_cast<std::size_t>(count);
  }
}

void Connection::interrupt() noexcept { (void)shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace headroom::exporter
