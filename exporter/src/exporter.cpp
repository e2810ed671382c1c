#include <headroom/exporter.hpp>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <headroom/flight_publish.hpp>

#include "listen_address.hpp"
#include "listener.hpp"
#include "server.hpp"
#include "service.hpp"

namespace headroom {

using flight::ExporterState;

namespace {

constexpr char kVariable[] = "HEADROOM_EXPORTER";

void say(std::string const& line) { (void)std::fprintf(stderr, "headroom: exporter: %s\n", line.c_str()); }

struct Refusal {
  ExporterState state = ExporterState::failed;
  Error error;
};

/// The listener of the first port that the policy allows.
tl::expected<exporter::Listener, Refusal> bind(ExporterOptions const& options) {
  auto address = exporter::parse_listen_address(options.listen);
  if (!address) return tl::unexpected(Refusal{ExporterState::failed, std::move(address.error())});
  const std::string wanted = address->to_string();
  const bool may_move = options.policy == BindPolicy::next && address->port != 0;
  for (unsigned tries = 1;; ++tries) {
    auto listener = exporter::open_listener(*address);
    if (listener) {
      if (tries > 1) say("'" + wanted + "' is taken, serving on '" + listener->bound.to_string() + "' instead");
      return std::move(*listener);
    }
    auto& failure = listener.error();
    if (may_move && failure.is_taken() && tries < options.ports_to_try && address->port < 65535) {
      ++address->port;
      continue;
    }
    if (tries > 1) failure.message += " (nor on the " + std::to_string(tries - 1) + " ports before it)";
    return tl::unexpected(Refusal{failure.is_taken() ? ExporterState::port_taken : ExporterState::failed,
                                  make_error(ErrorKind::io, Layer::request, std::move(failure.message))});
  }
}

}  // namespace

class Exporter::Core {
public:
  static Result<std::shared_ptr<Core>> start(ExporterOptions const& options) {
    auto core = std::make_shared<Core>();
    if (auto refusal = core->try_start(options)) {
      flight::publish_exporter(refusal->state, 0);
      if (options.policy == BindPolicy::fail) return tl::unexpected(std::move(refusal->error));
      core->failed_as_ = refusal->state;
      core->reason_ = std::move(refusal->error.message);
      say(core->reason_ + "; the program goes on without it");
    }
    return core;
  }

  ~Core() { stop(); }
  Core() = default;
  Core(Core const&) = delete;
  Core& operator=(Core const&) = delete;

  [[nodiscard]] bool is_serving() const noexcept { return server_ && server_->is_serving(); }
  [[nodiscard]] exporter::Server const& server() const noexcept { return *server_; }
  [[nodiscard]] ExporterState state() const noexcept {
    if (!server_) return failed_as_;
    return is_serving() ? ExporterState::serving : ExporterState::stopped;
  }
  [[nodiscard]] std::string reason() const {
    if (!server_) return reason_;
    if (server_->is_of_forked_parent()) return "it belongs to the process that forked this one";
    return is_serving() ? std::string{} : "it was stopped";
  }

  void stop() noexcept {
    if (!is_serving()) return;
    server_->stop();
    flight::publish_exporter(ExporterState::stopped, 0);
  }

private:
  std::optional<Refusal> try_start(ExporterOptions const& options) {
    auto listener = bind(options);
    if (!listener) return std::move(listener.error());

    // Clients that come now wait in the socket's queue. Publishing starts the recorder, and one answer of each kind before the exit
    // handler is installed makes every static that answers use older than it: they are destroyed after the exporter was stopped.
    flight::publish_exporter(ExporterState::serving, listener->bound.port);
    auto service = std::make_shared<exporter::Service>();
    for (const char* accept : {"", "application/openmetrics-text", "text/html"}) {
      (void)service->metrics({.accept = accept});
      (void)service->status({.accept = accept});
    }
    (void)service->state();

    auto server = exporter::Server::start(std::move(*listener), {.routes = exporter::Service::routes_of(service),
                                                                 .tick = [service] { service->tick(); },
                                                                 .count_error = [service] { service->count_error(); }});
    if (!server) return Refusal{ExporterState::failed, std::move(server.error())};
    server_ = std::move(*server);
    return std::nullopt;
  }

  std::shared_ptr<exporter::Server> server_;  // null when it never served
  ExporterState failed_as_ = ExporterState::failed;
  std::string reason_;
};

Exporter::Exporter(std::shared_ptr<Core> core) noexcept : core_(std::move(core)) {}
Exporter::Exporter(Exporter&& other) noexcept = default;
Exporter& Exporter::operator=(Exporter&& other) noexcept = default;
Exporter::~Exporter() = default;

Result<Exporter> Exporter::start(ExporterOptions options) {
  try {
    auto core = Core::start(options);
    if (!core) return tl::unexpected(std::move(core.error()));
    return Exporter{std::move(*core)};
  } catch (std::exception const& error) {
    return fail(ErrorKind::io, Layer::request, std::string{"the exporter could not start: "} + error.what());
  }
}

Result<std::optional<Exporter>> Exporter::start_from_environment() {
  const char* const value = std::getenv(kVariable);
  const std::string_view text = value == nullptr ? std::string_view{} : std::string_view{value};
  if (text.empty() || text == "off") return std::optional<Exporter>{};
  auto exporter = start({.listen = std::string{text}});
  if (!exporter) return tl::unexpected(std::move(exporter.error()));
  return std::optional<Exporter>{std::move(*exporter)};
}

std::uint16_t Exporter::port() const noexcept {
  return core_ && core_->is_serving() ? core_->server().bound().port : std::uint16_t{0};
}

std::string Exporter::address() const {
  return core_ && core_->is_serving() ? core_->server().bound().to_string() : std::string{};
}

std::string Exporter::url() const {
  if (!core_ || !core_->is_serving()) return {};
  auto const& server = core_->server();
  return "http://" + (server.serves_all() ? "127.0.0.1:" + std::to_string(server.bound().port) : server.bound().to_string());
}

ExporterState Exporter::state() const noexcept { return core_ ? core_->state() : ExporterState::stopped; }

std::string Exporter::reason() const { return core_ ? core_->reason() : std::string{"it was moved from"}; }

void Exporter::stop() noexcept {
  if (core_) core_->stop();
}

}  // namespace headroom
