#include "http.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include <httplib.h>

#include "gzip.hpp"
#include "host_check.hpp"
#include "labels.hpp"
#include "negotiation.hpp"
#include "request_head.hpp"
#include "shared_replies.hpp"

namespace headroom::exporter {
namespace {

constexpr std::size_t kRequestsPerConnection = 100;
constexpr std::string_view kAllowedMethods = "GET, HEAD";
constexpr std::string_view kHealthy = "/-/healthy";
constexpr std::string_view kMetrics = "/metrics";

/// A request that was read already, and where its answer goes.
class RequestStream final : public httplib::Stream {
public:
  /// Without a connection nobody hears the answer.
  RequestStream(std::string_view head, Connection* connection) : head_(head), connection_(connection) {}
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* target, std::size_t size) override {
    const auto count = std::min(size, head_.size());
    std::memcpy(target, head_.data(), count);
    head_.remove_prefix(count);
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* data, std::size_t size) override {
    return connection_ == nullptr || connection_->send(data, size) ? static_cast<ssize_t>(size) : -1;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  // Never the real one: cpp-httplib answers 500 to descriptors above 1023, for a select() that is not used here.
  socket_t socket() const override { return 0; }

private:
  std::string_view head_;
  Connection* connection_;
};

/// All headers of that name, as one.
std::string header_of(httplib::Request const& request, std::string const& name) {
  std::string value;
  for (std::size_t index = 0; index < request.get_header_value_count(name); ++index) {
    value += (index == 0 ? "" : ", ") + request.get_header_value(name, index);
  }
  return value;
}

/// What cpp-httplib does not hand through to the handler of a request.
struct Exchange {
  Connection* connection = nullptr;  // null when nobody hears the answer
  bool accepts_gzip = false;
};

// Of the request that this thread is serving; null while it serves none. Each thread's own, so no other ever reads it.
thread_local Exchange* current_exchange = nullptr;

/// Lets whoever answers find the exchange: it runs on the thread that serves.
class ForThisThread {
public:
  explicit ForThisThread(Exchange& exchange) noexcept { current_exchange = &exchange; }
  ~ForThisThread() { current_exchange = nullptr; }
  ForThisThread(ForThisThread const&) = delete;
  ForThisThread& operator=(ForThisThread const&) = delete;
};

/// Sends a document in pieces, whether or not they are packed on the way.
class DocumentSender {
public:
  DocumentSender(std::shared_ptr<Document const> document, bool is_packed) : document_(std::move(document)) {
    if (is_packed) gzip_ = std::make_unique<Gzip>();
  }

  /// The next piece; false when the client went away.
  bool send(httplib::DataSink& sink) {
    const auto count = document_->read(offset_, piece_);
    offset_ += count;
    const std::string_view bytes{piece_.data(), count};
    if (gzip_) {
      const auto packed = count == 0 ? gzip_->finish() : gzip_->add(bytes);
      if (!packed.empty() && !sink.write(packed.data(), packed.size())) return false;
    } else if (count != 0 && !sink.write(bytes.data(), bytes.size())) {
      return false;
    }
    if (count == 0) sink.done();
    return true;
  }

private:
  std::shared_ptr<Document const> document_;
  std::unique_ptr<Gzip> gzip_;
  std::uint64_t offset_ = 0;
  std::vector<char> piece_ = std::vector<char>(std::size_t{64} * 1024);
};

/// Sends what others may be taking as well: no copy is made of it, and it ends when it is taken back.
class SharedSender {
public:
  SharedSender(std::shared_ptr<SharedBody> body, Connection* connection)
      : taker_(std::move(body), [connection] {
          if (connection != nullptr) connection->interrupt();
        }) {}

  bool send(std::size_t offset, httplib::DataSink& sink) {
    constexpr std::size_t kPiece = std::size_t{64} * 1024;
    const auto piece = taker_.bytes().substr(offset, kPiece);
    if (taker_.is_over() || !sink.write(piece.data(), piece.size())) return false;
    taker_.note_progress();
    return true;
  }

private:
  SharedBody::Taker taker_;
};

/// cpp-httplib's server ignores SIGPIPE for the whole program as it is made. The program's handler is its own affair, and ours
/// is not needed: send() is told not to raise it.
class KeepSigpipe {
public:
  KeepSigpipe() noexcept { (void)sigaction(SIGPIPE, nullptr, &before_); }
  ~KeepSigpipe() { (void)sigaction(SIGPIPE, &before_, nullptr); }
  KeepSigpipe(KeepSigpipe const&) = delete;
  KeepSigpipe& operator=(KeepSigpipe const&) = delete;

private:
  struct sigaction before_{};
};

/// An answer to what is no whole request, so that there is nothing to parse.
void send_bare(Connection& connection, std::string_view status) {
  const auto text = "HTTP/1.1 " + std::string{status} + "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
  connection.begin_answer();
  if (connection.send(text.data(), text.size())) connection.finish();
}

}  // namespace

class Http::Engine : public httplib::Server {
public:
  Engine(Routes routes, std::function<void()> count_error, Authorize authorize, bool local_names_only)
      : routes_(std::move(routes)),
        count_error_(std::move(count_error)),
        authorize_(std::move(authorize)),
        local_names_only_(local_names_only) {
    if (const auto metrics = routes_.find(kMetrics); metrics != routes_.end()) {
      metrics->second = shared_route(std::move(metrics->second));
    }
    set_keep_alive_max_count(kRequestsPerConnection);
    set_keep_alive_timeout(kIdleLimit.count());
    svr_sock_ = 0;  // none, which cpp-httplib would take for a server that is about to end, and send no document
    // All routing happens here: no regular expressions, and 405 where the library would say 400 or 404.
    set_pre_routing_handler([this](httplib::Request const& request, httplib::Response& response) {
      answer(request, response);
      return HandlerResponse::Handled;
    });
  }

  /// cpp-httplib makes statics at the first request (its list of methods, for one). Made now, they are older than the exit
  /// handler that stops the server, hence still there for requests that run while the program ends.
  void make_statics() {
    RequestStream stream{"GET /not-a-page HTTP/1.1\r\nConnection: close\r\n\r\n", nullptr};
    bool must_close = false;
    (void)process_request(stream, true, must_close, {});
  }

  /// Answers one request; false when the connection ends with it.
  bool serve_one(Connection& connection, RequestHead const& head, bool is_last) {
    RequestStream stream{head.text, &connection};
    bool was_parsed = false;  // else it was answered with 400, and where the next request begins is anybody's guess
    bool must_close = false;
    Exchange exchange{.connection = &connection};
    const ForThisThread current{exchange};
    const bool was_sent = process_request(stream, is_last, must_close, [&](httplib::Request& request) {
      was_parsed = true;
      // Without the header cpp-httplib packs nothing: it would prefer Brotli at its slowest level where a browser offers both.
      exchange.accepts_gzip = accepts_gzip(header_of(request, "Accept-Encoding"));
      request.headers.erase("Accept-Encoding");
      // Bodies are not read, whatever the method: the connection ends, or the body would be taken for the next request.
      if (head.has_body) {
        request.headers.erase("Connection");
        request.set_header("Connection", "close");
      }
    });
    const bool goes_on = was_sent && was_parsed && !must_close && !head.has_body && !is_last;
    if (was_sent && !goes_on) connection.finish();
    return goes_on;
  }

  void count_error() const noexcept { count_error_(); }

private:
  void answer(httplib::Request const& request, httplib::Response& response) const {
    const auto refuse = [&response](int status, std::string const& text) {
      response.status = status;
      response.set_content(text + "\n", Reply{}.content_type);
    };
    response.set_header("X-Content-Type-Options", "nosniff");
    if (const auto host = header_of(request, "Host"); local_names_only_ && !is_local_name(host)) {
      return refuse(403,
                    "403: '" + safe_label_value(host) +
                        "' is not a name by which this exporter answers. It listens on a loopback address, and so answers for "
                        "localhost, names that end in .localhost, and IP addresses alone: a web page that points a name of its "
                        "own at this machine reads nothing. A proxy in front of it has to send one of these in Host; or let it "
                        "listen on another address.");
    }
    switch (access_of(request)) {
      case Access::granted: break;
      case Access::busy:
        response.set_header("Retry-After", "1");
        return refuse(503, "503: as many passwords as are checked at a time are being checked");
      case Access::denied:
        response.set_header("WWW-Authenticate", R"(Basic realm="headroom", charset="UTF-8")");
        return refuse(401, "401: a user and a password are needed");
    }
    const auto route = routes_.find(request.path);
    if (route == routes_.end()) return refuse(404, "404: there is no such page; / lists what there is");
    if (request.method != "GET" && request.method != "HEAD") {
      response.set_header("Allow", std::string{kAllowedMethods});
      return refuse(405, "405: only GET and HEAD");
    }
    try {
      const bool accepts_gzip = current_exchange != nullptr && current_exchange->accepts_gzip;
      give(request,
           route->second({.accept = header_of(request, "Accept"), .query = request.params, .accepts_gzip = accepts_gzip}),
           response);
    } catch (...) {
      count_error_();
      response.headers.erase("Content-Encoding");
      refuse(500, "500: the exporter failed to answer; the program is not affected");
    }
  }

  [[nodiscard]] Access access_of(httplib::Request const& request) const {
    if (!authorize_ || request.path == kHealthy) return Access::granted;
    try {
      return authorize_(request.get_header_value("Authorization"));
    } catch (...) {
      count_error_();
      return Access::denied;
    }
  }

  static void give(httplib::Request const& request, Reply reply, httplib::Response& response) {
    const Exchange exchange = current_exchange == nullptr ? Exchange{} : *current_exchange;
    response.status = reply.status;
    response.set_header("Cache-Control", "no-store");
    response.set_header("Accept-Ranges", "none");
    response.set_header("Vary", reply.varies_by_accept ? "Accept, Accept-Encoding" : "Accept-Encoding");
    for (auto const& [name, value] : reply.headers) response.set_header(name, value);
    if (reply.document != nullptr) return give_document(request, exchange, reply, response);
    if (reply.shared != nullptr && !reply.shared->bytes().empty()) return give_shared(exchange, reply, response);
    response.set_header("Content-Type", reply.content_type);
    if (exchange.accepts_gzip && reply.body.size() >= kWorthPacking) {
      response.body = gzipped(reply.body);
      response.set_header("Content-Encoding", "gzip");
    } else {
      response.body = std::move(reply.body);
    }
  }

  static void give_shared(Exchange const& exchange, Reply const& reply, httplib::Response& response) {
    // It may have waited for others: the time to take it begins here.
    if (exchange.connection != nullptr) exchange.connection->begin_answer();
    if (reply.shared->is_packed()) response.set_header("Content-Encoding", "gzip");
    const auto sender = std::make_shared<SharedSender>(reply.shared, exchange.connection);
    response.set_content_provider(
        reply.shared->bytes().size(), reply.content_type,
        [sender](std::size_t offset, std::size_t, httplib::DataSink& sink) { return sender->send(offset, sink); });
  }

  static void give_document(httplib::Request const& request, Exchange const& exchange, Reply const& reply,
                            httplib::Response& response) {
    const auto size = reply.document->size();
    if (exchange.connection != nullptr) exchange.connection->expect(size);
    // Its packed length is not known before it is sent, and older clients know no chunks.
    const bool is_packed = exchange.accepts_gzip && request.version != "HTTP/1.0";
    const auto sender = std::make_shared<DocumentSender>(reply.document, is_packed);
    if (is_packed) {
      response.set_header("Content-Encoding", "gzip");
      response.set_chunked_content_provider(reply.content_type,
                                            [sender](std::size_t, httplib::DataSink& sink) { return sender->send(sink); });
    } else {
      response.set_content_provider(size, reply.content_type,
                                    [sender](std::size_t, std::size_t, httplib::DataSink& sink) { return sender->send(sink); });
    }
  }

  Routes routes_;
  std::function<void()> count_error_;
  Authorize authorize_;
  bool local_names_only_;
};

Http::Http(Routes routes, std::function<void()> count_error, Authorize authorize, bool local_names_only) {
  const KeepSigpipe keep;
  engine_ = std::make_unique<Engine>(std::move(routes), std::move(count_error), std::move(authorize), local_names_only);
  engine_->make_statics();
}

Http::~Http() = default;

void Http::serve(Connection& connection, std::function<bool()> const& ends_now) noexcept {
  try {
    for (std::size_t served = 0; served < kRequestsPerConnection; ++served) {
      std::string head;
      switch (connection.read_head(head, served == 0)) {
        case Head::closed: return;
        case Head::too_late: return send_bare(connection, "408 Request Timeout");
        case Head::too_large: return send_bare(connection, "431 Request Header Fields Too Large");
        case Head::complete: break;
      }
      const auto checked = check_head(head);
      if (!checked) return send_bare(connection, "400 Bad Request");
      connection.begin_answer();
      const bool is_last = served + 1 == kRequestsPerConnection || ends_now();
      if (!engine_->serve_one(connection, *checked, is_last)) return;
    }
  } catch (...) {
    engine_->count_error();
  }
}

}  // namespace headroom::exporter
