// headroom: TLS on connections that the server accepted.
//
// Sockets, deadlines and waiting stay where they are (connection.hpp): a session only says whether it must read or write first. TLS 1.2
// and newer, no renegotiation, no client certificates. Only tls.cpp includes OpenSSL.
//
// Thread safety: a context from any thread; a session belongs to its connection's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <headroom/error.hpp>

namespace headroom::exporter {

enum class TlsStep : std::uint8_t { done, must_read, must_write, ended };

struct TlsProgress {
  TlsStep step = TlsStep::ended;
  std::size_t bytes = 0;  ///< when it is done
};

class TlsSession {
public:
  virtual ~TlsSession() = default;
  [[nodiscard]] virtual TlsStep handshake() = 0;
  [[nodiscard]] virtual TlsProgress read(char* into, std::size_t size) = 0;
  [[nodiscard]] virtual TlsProgress write(const char* from, std::size_t size) = 0;
  /// Bytes that were received and decrypted already: no poll() will tell of them.
  [[nodiscard]] virtual bool has_pending() const = 0;
  /// Says goodbye, without waiting for an answer.
  virtual void close() = 0;
};

class TlsContext {
public:
  /// PEM files: a certificate with its chain, and its key without a passphrase. Errors: io (a file cannot be read, is empty), parse (not
  /// what it should be; the key is another certificate's). Each names the file.
  [[nodiscard]] static Result<std::shared_ptr<TlsContext const>> load(std::string const& certificate, std::string const& key);
  virtual ~TlsContext() = default;

  /// What works, and is hardly what was meant: a line each for people. A certificate that is not valid now, which no client will accept; a
  /// key that others may read (no error: Kubernetes mounts secrets like that).
  [[nodiscard]] virtual std::vector<std::string> const& notices() const = 0;

  /// Of a connected, non-blocking socket, which stays the caller's. Null without memory for it.
  [[nodiscard]] virtual std::unique_ptr<TlsSession> accept(int socket) const = 0;
};

}  // namespace headroom::exporter
