#include "server.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "block_signals.hpp"
#include "host_check.hpp"

namespace headroom::exporter {
namespace {

void name_this_thread(const char* name) { (void)pthread_setname_np(pthread_self(), name); }

}  // namespace

Result<std::shared_ptr<Server>> Server::start(Listener listener, Work work) {
  FileDescriptor wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (wake.get() < 0) {
    return fail(ErrorKind::io, Layer::request, "no descriptor for the exporter: " + std::generic_category().message(errno));
  }
  auto server = std::make_shared<Server>(std::move(listener), std::move(wake), std::move(work));
  stop_at_exit_before_statics();  // those of cpp-httplib are made by now
  // Listed first: a fork at any moment from here on finds it.
  add_fork_aware(server);
  try {
    const BlockSignals block;
    server->thread_ = std::thread{[raw = server.get()] { raw->run(); }};
  } catch (std::system_error const& error) {
    server->stop();
    return fail(ErrorKind::io, Layer::request, std::string{"no thread for the exporter: "} + error.what());
  }
  return server;
}

Server::Server(Listener listener, FileDescriptor wake, Work work)
    : listening_(std::move(listener.socket)),
      wake_(std::move(wake)),
      bound_(std::move(listener.bound)),
      serves_all_(listener.serves_all),
      tick_(std::move(work.tick)),
      count_error_(std::move(work.count_error)),
      secure_(std::move(work.secure)),
      http_(std::move(work.routes), count_error_, std::move(work.authorize), is_loopback(bound_.host)) {}

Server::~Server() { stop(); }

void Server::stop() noexcept {
  if (is_of_forked_parent()) return;
  const std::lock_guard stop_lock{stop_mutex_};
  if (stopping_.exchange(true, std::memory_order_acq_rel)) return;
  (void)eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock{mutex_};
    for (auto& client : clients_) {
      if (!client.is_done) client.connection.interrupt();
    }
  }
  // The accepting thread is gone, so the list changes no more; only flags in it do.
  for (auto& client : clients_) client.thread.join();
  clients_.clear();
  // A child that was forked a moment ago may still have its copy of the socket; shut down, that one holds no port.
  (void)shutdown(listening_.get(), SHUT_RDWR);
  listening_.reset();
  wake_.reset();
  remove_fork_aware(*this);
}

void Server::run() noexcept {
  name_this_thread("headroom-http");
  auto next_tick = Clock::now();
  bool may_accept = true;
  while (is_serving()) {
    if (Clock::now() >= next_tick) {
      next_tick = Clock::now() + kTickInterval;
      may_accept = true;
      tick();
    }
    try {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_tick - Clock::now());
      pollfd entries[2] = {{wake_.get(), POLLIN, 0}, {may_accept ? listening_.get() : -1, POLLIN, 0}};
      const int ready = poll(entries, 2, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
      if (ready > 0 && entries[1].revents != 0) accept_one();
      // A program that closes descriptors it does not know (as daemons do) leaves us deaf, but must not make us spin.
      if (ready > 0 && ((entries[0].revents | entries[1].revents) & POLLNVAL) != 0) std::this_thread::sleep_for(kTickInterval);
    } catch (...) {
      // Out of descriptors, memory or threads: whoever waits is served when some are free again, and until then we do not spin.
      count_error_();
      may_accept = false;
    }
  }
}

void Server::tick() noexcept {
  try {
    reap();
    tick_();
  } catch (...) {
    count_error_();
  }
}

void Server::accept_one() {
  if (!make_room()) {
    // All are busy answering, which takes milliseconds; the newcomer waits in the socket's queue meanwhile.
    constexpr int kPauseMilliseconds = 5;
    pollfd entry{wake_.get(), POLLIN, 0};
    (void)poll(&entry, 1, kPauseMilliseconds);
    return;
  }
  FileDescriptor socket{accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  if (socket.get() >= 0) {
    // An answer is written as head and body. Without this the body of a small one waits until the client has acknowledged the head, for
    // which it takes 40 ms.
    const int yes = 1;
    (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return admit(std::move(socket));
  }
  switch (errno) {
    case EAGAIN:
    case EINTR:
    case EPROTO:
    case EPERM:
    case ECONNABORTED: return;  // about that one client, which went away before it was accepted
    default: throw std::system_error(errno, std::generic_category(), "accept");
  }
}

void Server::admit(FileDescriptor socket) {
  const std::lock_guard lock{mutex_};
  auto& client = clients_.emplace_back(std::move(socket));
  try {
    client.thread = std::thread{[this, &client] { serve(client); }};  // inherits the blocked signals
  } catch (...) {
    clients_.pop_back();
    throw;
  }
}

bool Server::make_room() {
  reap();
  const std::lock_guard lock{mutex_};
  // One that was interrupted is gone in a moment, unless it is in the middle of a route's function.
  if (clients_.size() >= 2 * kMaxConnections) return false;
  const auto open = std::ranges::count_if(clients_, [](Client const& client) { return !client.is_ending && !client.is_done; });
  const bool is_crowded = open >= static_cast<std::ptrdiff_t>(kMaxConnections);
  crowded_.store(is_crowded, std::memory_order_relaxed);
  if (!is_crowded) return true;
  // The oldest that waits for its client to speak, else the oldest that waits for its client to listen.
  for (const Phase phase : {Phase::waiting, Phase::sending}) {
    const auto oldest = std::ranges::find_if(clients_, [phase](Client const& client) {
      return !client.is_ending && !client.is_done && client.connection.phase() == phase;
    });
    if (oldest != clients_.end()) {
      oldest->is_ending = true;
      oldest->connection.interrupt();
      return true;
    }
  }
  return false;
}

void Server::reap() {
  std::list<Client> done;
  {
    const std::lock_guard lock{mutex_};
    for (auto client = clients_.begin(); client != clients_.end();) {
      const auto next = std::next(client);
      if (client->is_done) done.splice(done.end(), clients_, client);
      client = next;
    }
  }
  for (auto& client : done) client.thread.join();  // it is past its last statement that could wait
}

void Server::serve(Client& client) noexcept {
  name_this_thread("headroom-client");
  if (is_secured(client.connection)) {
    http_.serve(client.connection, [this] { return !is_serving() || crowded_.load(std::memory_order_relaxed); });
  }
  const std::lock_guard lock{mutex_};
  client.connection.close();
  client.is_done = true;
}

/// A handshake that fails is the client's affair, and no error of ours.
bool Server::is_secured(Connection& connection) noexcept {
  if (!secure_) return true;
  try {
    return connection.secure(secure_(connection.descriptor()));
  } catch (...) {
    count_error_();
    return false;
  }
}

void Server::before_fork() noexcept { mutex_.lock(); }

void Server::after_fork_in_parent() noexcept { mutex_.unlock(); }

void Server::after_fork_in_child() noexcept {
  // The child's copies of the sockets would keep the port taken and the clients waiting after the parent closed its own.
  for (auto& client : clients_) client.connection.close();
  listening_.reset();
  wake_.reset();
  stopping_.store(true, std::memory_order_release);
  forked_.store(true, std::memory_order_release);
  mutex_.unlock();
}

}  // namespace headroom::exporter
