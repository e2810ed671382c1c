// headroom: HTTP over connections that the server accepted.
//
// cpp-httplib parses requests and writes responses (HEAD, gzip, keep-alive); sockets, threads and deadlines are the server's.
// Only http.cpp includes cpp-httplib.
//
// Thread safety: serve() may run on many threads at once; a route's function must stand that too.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "connection.hpp"

namespace headroom::exporter {

struct Reply {
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
};
/// May throw: the client gets a 500, and the error is counted.
using Route = std::function<Reply()>;
using Routes = std::map<std::string, Route, std::less<>>;

class Http {
public:
  /// `count_error` is called once for each request that failed on our side; it must not throw.
  Http(Routes routes, std::function<void()> count_error);
  ~Http();

  /// Answers requests until the client or a limit ends the connection, or `ends_now`, asked before each answer, makes that one
  /// the last. Does not close the descriptor.
  void serve(Connection& connection, std::function<bool()> const& ends_now) noexcept;

private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace headroom::exporter
