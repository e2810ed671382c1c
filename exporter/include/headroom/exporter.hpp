// headroom: the exporter inside a program: metrics for Prometheus, a live page for people.
// Layer: exporter
//
// One thread serves this process's books, at /metrics and, for browsers, at /, and follows the event lanes four times a second; each
// open connection has a short-lived thread of its own. Figures are read from the books when somebody asks, so nothing is copied, cached or locked: an
// allocation never waits for a scrape.
//
// Use start() where the program decides, start_from_environment() where whoever runs it does (HEADROOM_EXPORTER=127.0.0.1:9478).
// By default nothing that goes wrong with the port disturbs the program: it runs on, state() and reason() say why, one line goes
// to stderr, and the flight file shows it to `headroom ps`.
//
// Fork: the parent goes on serving; in the child this object serves nothing, holds no port, and may be destroyed or stopped.
// Exit: an exporter that still runs is stopped before statics that are older than it are destroyed.
// Signals: the exporter's threads block all signals but those of faults; the program's SIGPIPE handler stays as it is.
// Thread safety: const members from any thread; start, stop, move and destruction as for any value.
// GPUs: their memory is read through NVML at each scrape, where there is a driver, by a GpuSampler: a driver that hangs costs a scrape
// (start() makes the first) a quarter of a second once, and its figures. No CUDA context is made, and libcuda is not opened.
// Cost: one thread, asleep but for a few microseconds four times a second, and a short-lived one for each reading of the GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <headroom/error.hpp>
#include <headroom/flight_format.hpp>

namespace headroom {

/// What happens when the address cannot be served.
enum class BindPolicy : std::uint8_t {
  warn,  ///< the program goes on without an exporter; state, reason and one line on stderr say so
  fail,  ///< start() returns the error
  next,  ///< a taken port is passed over for the next free one; anything else is as `warn`
};

struct ExporterOptions {
  /// HOST:PORT, [IPv6]:PORT, :PORT (all addresses, IPv6 and IPv4), or PORT alone (127.0.0.1). Port 0 is any free one.
  std::string listen = "127.0.0.1:9478";
  BindPolicy policy = BindPolicy::warn;
  /// With BindPolicy::next: how many ports are tried, the first included.
  std::uint16_t ports_to_try = 32;
};

class Exporter {
public:
  /// Serves this process. Errors, with BindPolicy::fail only: parse (the address is none), io (it cannot be bound; the system's
  /// text). With the other policies there is always an Exporter, and state() tells whether it serves.
  [[nodiscard]] static Result<Exporter> start(ExporterOptions options = {});

  /// As start(), with HEADROOM_EXPORTER as the address and BindPolicy::warn. Nothing when the variable is unset, empty or `off`.
  [[nodiscard]] static Result<std::optional<Exporter>> start_from_environment();

  Exporter(Exporter&& other) noexcept;
  Exporter& operator=(Exporter&& other) noexcept;
  ~Exporter();

  /// The port really bound; 0 when it does not serve.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// HOST:PORT as bound, such as "127.0.0.1:9478" or "[::]:9478"; empty when it does not serve.
  [[nodiscard]] std::string address() const;
  /// What to open on this machine, such as "http://127.0.0.1:9478" (also when all addresses are served); empty likewise.
  [[nodiscard]] std::string url() const;
  /// serving, port_taken, failed (another reason), stopped.
  [[nodiscard]] flight::ExporterState state() const noexcept;
  /// Why it does not serve, in a sentence that names the address; empty while it serves.
  [[nodiscard]] std::string reason() const;

  /// Closes the port and all connections and waits for the threads; a scrape being answered is cut off. May be called again.
  void stop() noexcept;

private:
  class Core;
  explicit Exporter(std::shared_ptr<Core> core) noexcept;
  std::shared_ptr<Core> core_;
};

}  // namespace headroom
