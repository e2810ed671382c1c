#include <headroom/node_exporter.hpp>

#include <unistd.h>
#include <cstdio>
#include <exception>
#include <mutex>
#include <utility>

#include "fork_registry.hpp"
#include "listen_address.hpp"
#include "listener.hpp"
#include "node_service.hpp"
#include "password_file.hpp"
#include "server.hpp"
#include "tls.hpp"

namespace headroom {
namespace {

using exporter::PasswordFile;
using exporter::TlsContext;

/// What may change while the exporter serves: whoever uses it has its own copy of the pointer.
template <class T>
class Replaceable {
public:
  [[nodiscard]] std::shared_ptr<T> get() const {
    const std::lock_guard lock{mutex_};
    return it_;
  }
  void set(std::shared_ptr<T> it) {
    const std::lock_guard lock{mutex_};
    it_.swap(it);
  }

private:
  mutable std::mutex mutex_;
  std::shared_ptr<T> it_;
};

struct Doors {
  Replaceable<TlsContext const> tls;
  Replaceable<PasswordFile> passwords;
};

/// Of a file or folder that somebody named: the caller can tell it from a wrong argument by its layer.
tl::unexpected<Error> of_a_file(Error error) {
  error.layer = Layer::resource;
  return tl::unexpected(std::move(error));
}

Result<void> read_doors(NodeExporterOptions const& options, Doors& doors) {
  std::shared_ptr<TlsContext const> tls;
  std::shared_ptr<PasswordFile> passwords;
  if (!options.tls_certificate.empty()) {
    auto loaded = TlsContext::load(options.tls_certificate, options.tls_key);
    if (!loaded) return of_a_file(std::move(loaded.error()));
    tls = std::move(*loaded);
    for (auto const& notice : tls->notices()) options.log(notice);
  }
  if (!options.auth_file.empty()) {
    auto loaded = PasswordFile::load(options.auth_file);
    if (!loaded) return of_a_file(std::move(loaded.error()));
    passwords = std::move(*loaded);
  }
  // Both or none.
  doors.tls.set(std::move(tls));
  doors.passwords.set(std::move(passwords));
  return success();
}

Result<void> check(NodeExporterOptions const& options) {
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return fail(ErrorKind::invalid_argument, Layer::request,
                options.tls_key.empty() ? "a TLS certificate without its key; expected both"
                                        : "a TLS key without its certificate; expected both");
  }
  for (auto const& folder : options.folders) {
    if (auto good = exporter::check_folder(folder); !good) return of_a_file(std::move(good.error()));
  }
  return success();
}

}  // namespace

class NodeExporter::Core {
public:
  explicit Core(NodeExporterOptions options) : options_(std::move(options)), doors_(std::make_shared<Doors>()) {
    if (!options_.log)
      options_.log = [](std::string const& line) { (void)std::fprintf(stderr, "headroom export: %s\n", line.c_str()); };
  }
  Core(Core const&) = delete;
  Core& operator=(Core const&) = delete;
  ~Core() { stop(); }

  Result<void> start() {
    if (auto good = check(options_); !good) return good;
    if (auto read = read_doors(options_, *doors_); !read) return read;
    const auto address = exporter::parse_listen_address(options_.listen);
    if (!address) return tl::unexpected(address.error());
    // Before anything is watched: a second exporter on this machine must not write post-mortems and remove files on its way out.
    auto listener = exporter::open_listener(*address);
    if (!listener) return fail(ErrorKind::io, Layer::request, std::move(listener.error().message));
    service_ =
        std::make_shared<exporter::NodeService>(exporter::NodeService::Options{.folders = options_.folders,
                                                                               .keep_dead = options_.keep_dead,
                                                                               .limits = {},
                                                                               .writes_post_mortems = options_.post_mortems,
                                                                               .dump_folder = options_.dump_folder,
                                                                               .survives_truncation = options_.survive_truncation,
                                                                               .log = options_.log});
    exporter::add_fork_aware(service_);
    if (auto started = service_->start(); !started) return started;
    auto server = exporter::Server::start(std::move(*listener), work());
    if (!server) return tl::unexpected(std::move(server.error()));
    server_ = std::move(*server);
    return success();
  }

  void stop() noexcept {
    // In a child that was forked all of it is the parent's: its threads, and what wakes them.
    if (is_of_forked_parent()) return;
    if (server_) server_->stop();
    if (!service_) return;
    service_->stop();
    exporter::remove_fork_aware(*service_);
  }

  Result<void> reload() { return read_doors(options_, *doors_); }

  [[nodiscard]] exporter::Server const& server() const noexcept { return *server_; }
  [[nodiscard]] bool is_of_forked_parent() const noexcept { return owner_ != ::getpid(); }
  [[nodiscard]] bool is_secure() const noexcept { return !options_.tls_certificate.empty(); }

private:
  exporter::Server::Work work() {
    exporter::Server::Work work{.routes = exporter::NodeService::routes_of(service_),
                                .tick = [] {},
                                .count_error = [service = service_] { service->count_error(); }};
    if (!options_.auth_file.empty()) {
      work.authorize = [doors = doors_](std::string const& authorization) {
        const auto passwords = doors->passwords.get();
        return passwords ? passwords->access_of(authorization) : exporter::Access::denied;
      };
    }
    if (is_secure()) {
      work.secure = [doors = doors_](int socket) {
        const auto tls = doors->tls.get();
        return tls ? tls->accept(socket) : nullptr;
      };
    }
    return work;
  }

  pid_t const owner_ = ::getpid();
  NodeExporterOptions options_;
  std::shared_ptr<Doors> doors_;
  std::shared_ptr<exporter::NodeService> service_;
  std::shared_ptr<exporter::Server> server_;
};

NodeExporter::NodeExporter(std::unique_ptr<Core> core) noexcept : core_(std::move(core)) {}
NodeExporter::NodeExporter(NodeExporter&& other) noexcept = default;
NodeExporter& NodeExporter::operator=(NodeExporter&& other) noexcept = default;
NodeExporter::~NodeExporter() = default;

Result<NodeExporter> NodeExporter::start(NodeExporterOptions options) {
  try {
    auto core = std::make_unique<Core>(std::move(options));
    if (auto started = core->start(); !started) return tl::unexpected(std::move(started.error()));
    return NodeExporter{std::move(core)};
  } catch (std::exception const& error) {
    return fail(ErrorKind::io, Layer::request, std::string{"the exporter could not start: "} + error.what());
  }
}

Result<void> NodeExporter::reload() {
  if (!core_)
    return fail(ErrorKind::invalid_argument, Layer::request, "an exporter that was moved from has nothing to read again");
  try {
    return core_->reload();
  } catch (std::exception const& error) {
    return fail(ErrorKind::io, Layer::request, std::string{"cannot be read again: "} + error.what());
  }
}

std::uint16_t NodeExporter::port() const noexcept { return core_ ? core_->server().bound().port : std::uint16_t{0}; }

std::string NodeExporter::address() const { return core_ ? core_->server().bound().to_string() : std::string{}; }

std::string NodeExporter::url() const {
  if (!core_) return {};
  auto const& server = core_->server();
  const std::string host = server.serves_all() ? "127.0.0.1:" + std::to_string(server.bound().port) : server.bound().to_string();
  return (core_->is_secure() ? "https://" : "http://") + host;
}

void NodeExporter::stop() noexcept {
  if (core_) core_->stop();
}

}  // namespace headroom
