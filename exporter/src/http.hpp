// headroom: HTTP over connections that the server accepted.
//
// cpp-httplib parses requests and writes responses (HEAD, keep-alive, chunks); sockets, threads and deadlines are the server's, and
// gzip is ours, since it would leave out OpenMetrics. Only http.cpp includes cpp-httplib. /metrics is made once for all who ask at the same
// time, and what is on its way of it is bounded (shared_replies.hpp).
//
// Thread safety: serve() may run on many threads at once; a route's function must stand that too.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "access.hpp"
#include "connection.hpp"
#include "document.hpp"

namespace headroom::exporter {

class SharedBody;

/// What a route may want to know of a request.
struct Request {
  std::string accept{};                             ///< all Accept headers, as one
  std::multimap<std::string, std::string> query{};  ///< decoded
  bool accepts_gzip = false;
};

struct Reply {
  std::string body{};
  std::string content_type = "text/plain; charset=utf-8";
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers{};  ///< further ones
  bool varies_by_accept = false;                               ///< another client may get another representation
  std::shared_ptr<Document const> document{};                  ///< sent piece by piece, in place of `body`
  std::shared_ptr<SharedBody> shared{};                        ///< likewise, and perhaps to others as well
};
/// May throw: the client gets a 500, and the error is counted.
using Route = std::function<Reply(Request const&)>;
using Routes = std::map<std::string, Route, std::less<>>;

/// Whether who sends this value of the header Authorization (empty: none) may read. From any thread; may throw, as a Route may.
using Authorize = std::function<Access(std::string const&)>;

class Http {
public:
  /// `count_error` is called once for each request that failed on our side; it must not throw. Without `authorize` everybody may read,
  /// with it everybody may still ask for /-/healthy, which tells nothing. `local_names_only`: requests for other names than
  /// host_check.hpp allows get a 403, whatever they ask for.
  Http(Routes routes, std::function<void()> count_error, Authorize authorize = {}, bool local_names_only = false);
  ~Http();

  /// Answers requests until the client or a limit ends the connection, or `ends_now`, asked before each answer, makes that one
  /// the last. Does not close the descriptor.
  void serve(Connection& connection, std::function<bool()> const& ends_now) noexcept;

private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace headroom::exporter
