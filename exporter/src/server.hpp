// headroom: accepts connections, gives each a thread, and does something regularly in between.
//
// At most kMaxConnections at a time. When one more comes, the one that has kept us waiting longest is ended: a crowd of idle or
// dripping clients costs nobody else a scrape. cpp-httplib's own accept loop ends for good at an error that passes (ENFILE,
// ECONNABORTED) and knows neither close-on-exec nor fork; hence this one.
//
// Every wait ends when stop() says so or at a deadline of connection.hpp, so stop() takes as long as the slowest route's
// function.
//
// Thread safety: every public member from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "fork_registry.hpp"
#include "http.hpp"
#include "listener.hpp"

namespace headroom::exporter {

inline constexpr std::size_t kMaxConnections = 64;
inline constexpr std::chrono::milliseconds kTickInterval{250};

class Server final : public ForkAware {
public:
  struct Work {
    Routes routes;
    std::function<void()> tick;         ///< on the accepting thread every kTickInterval; what it throws is counted
    std::function<void()> count_error;  ///< from any thread; must not throw
    Authorize authorize{};              ///< see Http; empty: everybody
    /// A session for a new connection, from its own thread; empty: plain HTTP.
    std::function<std::unique_ptr<TlsSession>(int socket)> secure{};
  };
  /// Errors: io (no thread, no descriptor).
  [[nodiscard]] static Result<std::shared_ptr<Server>> start(Listener listener, Work work);
  Server(Listener listener, FileDescriptor wake, Work work);  // for start()
  ~Server() override;

  /// Closes the port and all connections, and waits for the threads. May be called again; in a forked child it does nothing.
  void stop() noexcept;

  [[nodiscard]] ListenAddress const& bound() const noexcept { return bound_; }
  [[nodiscard]] bool serves_all() const noexcept { return serves_all_; }
  /// False once it was stopped, and in a forked child.
  [[nodiscard]] bool is_serving() const noexcept { return !stopping_.load(std::memory_order_acquire); }
  [[nodiscard]] bool is_of_forked_parent() const noexcept { return forked_.load(std::memory_order_acquire); }

  void before_fork() noexcept override;
  void after_fork_in_parent() noexcept override;
  void after_fork_in_child() noexcept override;
  void stop_at_exit() noexcept override { stop(); }

private:
  struct Client {
    explicit Client(FileDescriptor socket) noexcept : connection(std::move(socket)) {}
    Connection connection;
    bool is_ending = false;  // interrupted for another client's sake
    bool is_done = false;    // its thread is about to return
    std::thread thread;
  };

  void run() noexcept;
  void tick() noexcept;
  void accept_one();
  void admit(FileDescriptor socket);
  bool make_room();  // for one more client; false: not now
  void reap();
  void serve(Client& client) noexcept;
  [[nodiscard]] bool is_secured(Connection& connection) noexcept;

  FileDescriptor listening_;
  FileDescriptor wake_;  // an eventfd: readable once stop() was called
  ListenAddress bound_;
  bool serves_all_;
  std::function<void()> tick_;
  std::function<void()> count_error_;
  std::function<std::unique_ptr<TlsSession>(int)> secure_;
  Http http_;
  std::mutex mutex_;           // guards clients_ (its list, flags and open descriptors); never held over a wait or a route
  std::list<Client> clients_;  // in order of acceptance
  std::mutex stop_mutex_;      // one stop() at a time
  std::thread thread_;
  std::atomic<bool> crowded_{
      false};  // written as clients are admitted, read after each answer; relaxed: a hint to end keep-alive
  std::atomic<bool> stopping_{false};  // written by stop() and in a forked child, release; read everywhere, acquire
  std::atomic<bool> forked_{false};    // written in a forked child, release
};

}  // namespace headroom::exporter
