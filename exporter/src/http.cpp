#include "http.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include <httplib.h>

namespace headroom::exporter {
namespace {

constexpr std::size_t kRequestsPerConnection = 100;
constexpr std::string_view kAllowedMethods = "GET, HEAD";

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

/// Removes `Range` headers: cpp-httplib matches them with a recursive std::regex, which a long value drives into the end of the
/// stack; a part of a scrape is of no use to anybody.
std::string without_ranges(std::string_view head) {
  constexpr std::string_view kRange = "range";
  std::string kept;
  kept.reserve(head.size());
  while (!head.empty()) {
    const auto end = std::min(head.find('\n'), head.size() - 1) + 1;
    const auto line = head.substr(0, end);
    const auto name = line.substr(0, line.find_first_of(": \t\r\n"));
    const bool is_range = std::ranges::equal(name, kRange, {}, [](char letter) { return letter | 0x20; });
    if (!is_range) kept += line;
    head.remove_prefix(end);
  }
  return kept;
}

/// gzip or nothing. cpp-httplib would prefer Brotli at its slowest level where a browser offers both.
void reduce_encodings(httplib::Request& request) {
  const auto accepted = request.get_header_value("Accept-Encoding");
  request.headers.erase("Accept-Encoding");
  const auto gzip = accepted.find("gzip");
  if (gzip == std::string::npos) return;
  const auto parameters = accepted.substr(gzip, accepted.find(',', gzip) - gzip);
  const auto weight = parameters.find("q=");
  const bool is_refused = weight != std::string::npos && parameters.find_first_of("123456789", weight) == std::string::npos;
  if (!is_refused) request.headers.emplace("Accept-Encoding", "gzip");
}

bool has_body(httplib::Request const& request) {
  return request.has_header("Transfer-Encoding") ||
         (request.has_header("Content-Length") && request.get_header_value("Content-Length") != "0");
}

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
  Engine(Routes routes, std::function<void()> count_error) : routes_(std::move(routes)), count_error_(std::move(count_error)) {
    set_keep_alive_max_count(kRequestsPerConnection);
    set_keep_alive_timeout(kIdleLimit.count());
    // All routing happens here: no regular expressions, and 405 where the library would say 400 or 404.
    set_pre_routing_handler([this](httplib::Request const& request, httplib::Response& response) {
      answer(request, response);
      return HandlerResponse::Handled;
    });
  }

  /// cpp-httplib makes statics at the first request (its list of methods, for one). Made now, they are older than the exit
  /// handler that stops the server, hence still there for requests that run while the program ends.
  void make_statics() {
    RequestStream stream{"GET /not-a-page HTTP/1.1\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n", nullptr};
    bool must_close = false;
    (void)process_request(stream, true, must_close, {});
  }

  /// Answers one request; false when the connection ends with it.
  bool serve_one(Connection& connection, std::string_view head, bool is_last) {
    RequestStream stream{head, &connection};
    bool was_parsed = false;  // else it was answered with 400, and where the next request begins is anybody's guess
    bool must_close = false;
    bool has_unread_body = false;
    const bool was_sent = process_request(stream, is_last, must_close, [&](httplib::Request& request) {
      was_parsed = true;
      reduce_encodings(request);
      // Bodies are not read, whatever the method: the connection ends, or the body would be taken for the next request.
      has_unread_body = has_body(request);
      if (has_unread_body) {
        request.headers.erase("Connection");
        request.set_header("Connection", "close");
      }
    });
    const bool goes_on = was_sent && was_parsed && !must_close && !has_unread_body && !is_last;
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
    const auto route = routes_.find(request.path);
    if (route == routes_.end()) return refuse(404, "404: there is no such page; / lists what there is");
    if (request.method != "GET" && request.method != "HEAD") {
      response.set_header("Allow", std::string{kAllowedMethods});
      return refuse(405, "405: only GET and HEAD");
    }
    try {
      auto reply = route->second();
      response.set_header("Cache-Control", "no-store");
      response.set_header("Accept-Ranges", "none");
      response.set_header("Vary", "Accept-Encoding");
      response.set_content(reply.body, reply.content_type);
    } catch (...) {
      count_error_();
      refuse(500, "500: the exporter failed to answer; the program is not affected");
    }
  }

  Routes routes_;
  std::function<void()> count_error_;
};

Http::Http(Routes routes, std::function<void()> count_error) {
  const KeepSigpipe keep;
  engine_ = std::make_unique<Engine>(std::move(routes), std::move(count_error));
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
      connection.begin_answer();
      const bool is_last = served + 1 == kRequestsPerConnection || ends_now();
      if (!engine_->serve_one(connection, without_ranges(head), is_last)) return;
    }
  } catch (...) {
    engine_->count_error();
  }
}

}  // namespace headroom::exporter
