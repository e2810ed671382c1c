#include "tls.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <utility>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include "small_file.hpp"

namespace headroom::exporter {
namespace {

template <auto Free>
struct With {
  template <class T>
  void operator()(T* it) const noexcept {
    Free(it);
  }
};
using Bio = std::unique_ptr<BIO, With<&BIO_free_all>>;
using Certificate = std::unique_ptr<X509, With<&X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, With<&EVP_PKEY_free>>;
using Context = std::unique_ptr<SSL_CTX, With<&SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, With<&SSL_free>>;

tl::unexpected<Error> refuse(std::string const& what, std::string const& path, std::string const& why) {
  return fail(ErrorKind::parse, Layer::request, what + " '" + path + "': " + why);
}

/// OpenSSL's own words for what went wrong last; leaves its queue empty.
std::string reason() {
  const auto code = ERR_peek_last_error();
  char const* const text = code == 0 ? nullptr : ERR_reason_error_string(code);
  std::string words = text == nullptr ? "unknown error" : text;
  ERR_clear_error();
  return words;
}

/// Nobody is there to type one; OpenSSL would ask on the terminal.
int no_passphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

class OpenSslSession final : public TlsSession {
public:
  explicit OpenSslSession(Session session) : session_(std::move(session)) {}
  TlsStep handshake() override { return step_of(SSL_accept(session_.get())); }
  TlsProgress read(char* into, std::size_t size) override {
    ERR_clear_error();
    std::size_t done = 0;
    const int result = SSL_read_ex(session_.get(), into, size, &done);
    return {step_of(result), done};
  }
  TlsProgress write(const char* from, std::size_t size) override {
    ERR_clear_error();
    std::size_t done = 0;
    const int result = SSL_write_ex(session_.get(), from, size, &done);
    return {step_of(result), done};
  }
  bool has_pending() const override { return SSL_has_pending(session_.get()) == 1; }
  void close() override {
    if (!is_broken_) (void)SSL_shutdown(session_.get());
    ERR_clear_error();
  }

private:
  TlsStep step_of(int result) {
    if (result > 0) return TlsStep::done;
    switch (SSL_get_error(session_.get(), result)) {
      case SSL_ERROR_WANT_READ: return TlsStep::must_read;
      case SSL_ERROR_WANT_WRITE: return TlsStep::must_write;
      case SSL_ERROR_ZERO_RETURN: return TlsStep::ended;
      default: break;
    }
    is_broken_ = true;  // after such an error a session must not even be closed
    ERR_clear_error();
    return TlsStep::ended;
  }

  Session session_;
  bool is_broken_ = false;
};

class OpenSslContext final : public TlsContext {
public:
  OpenSslContext(Context context, std::vector<std::string> notices)
      : context_(std::move(context)), notices_(std::move(notices)) {}
  std::vector<std::string> const& notices() const override { return notices_; }
  std::unique_ptr<TlsSession> accept(int socket) const override {
    Session session{SSL_new(context_.get())};
    if (!session || SSL_set_fd(session.get(), socket) != 1) {
      ERR_clear_error();
      return nullptr;
    }
    return std::make_unique<OpenSslSession>(std::move(session));
  }

private:
  Context context_;
  std::vector<std::string> notices_;
};

/// "2026-11-30 16:00:00 UTC" of a time in a certificate; what OpenSSL prints of it, if it is none.
std::string utc_text(ASN1_TIME const* time) {
  std::tm parts{};
  std::array<char, 40> text{};
  if (ASN1_TIME_to_tm(time, &parts) != 1 || std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0) {
    ERR_clear_error();
    return "an unknown time";
  }
  return text.data();
}

std::vector<std::string> notices_of(X509 const* certificate, std::string const& path, std::string const& key) {
  std::vector<std::string> notices;
  // 0: not a time that can be compared. The certificate is the clients' to judge then.
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    notices.push_back("certificate '" + path + "': expired " + utc_text(X509_get0_notAfter(certificate)) +
                      "; clients that check it will refuse it");
  } else if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    notices.push_back("certificate '" + path + "': not valid before " + utc_text(X509_get0_notBefore(certificate)) +
                      "; clients that check it will refuse it");
  }
  struct stat info{};
  if (::stat(key.c_str(), &info) == 0 && (info.st_mode & S_IROTH) != 0) {
    notices.push_back("key '" + key + "': every user of this machine may read it; expected a mode such as 0600");
  }
  return notices;
}

Bio memory_of(std::string const& text) { return Bio{BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))}; }

/// The first certificate is ours, those after it are its chain.
Result<void> use_certificates(SSL_CTX* context, std::string const& path) {
  constexpr char kWhat[] = "certificate";
  const auto text = read_small_file(kWhat, path);
  if (!text) return tl::unexpected(text.error());
  const Bio bio = memory_of(*text);
  const Certificate first{PEM_read_bio_X509_AUX(bio.get(), nullptr, nullptr, nullptr)};
  if (!first) return refuse(kWhat, path, "holds no certificate in PEM form (" + reason() + ")");
  if (SSL_CTX_use_certificate(context, first.get()) != 1) return refuse(kWhat, path, "cannot be used (" + reason() + ")");
  for (;;) {
    Certificate next{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)};
    if (!next) break;
    if (SSL_CTX_add0_chain_cert(context, next.get()) != 1)
      return refuse(kWhat, path, "its chain cannot be used (" + reason() + ")");
    [[maybe_unused]] auto* const the_contexts = next.release();
  }
  // "No start line" is how a list of certificates ends.
  const auto code = ERR_peek_last_error();
  if (ERR_GET_LIB(code) != ERR_LIB_PEM || ERR_GET_REASON(code) != PEM_R_NO_START_LINE) {
    return refuse(kWhat, path, "a certificate of its chain is broken (" + reason() + ")");
  }
  ERR_clear_error();
  return success();
}

Result<void> use_key(SSL_CTX* context, std::string const& path, std::string const& certificate) {
  constexpr char kWhat[] = "key";
  const auto text = read_small_file(kWhat, path);
  if (!text) return tl::unexpected(text.error());
  const Bio bio = memory_of(*text);
  bool was_asked = false;
  const Key key{PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, &was_asked)};
  if (was_asked) {
    ERR_clear_error();
    return refuse(kWhat, path, "needs a passphrase; expected a key without one");
  }
  if (!key) return refuse(kWhat, path, "holds no private key in PEM form (" + reason() + ")");
  // Compared before it is used: OpenSSL would drop the certificate and say so with other words.
  if (X509_check_private_key(SSL_CTX_get0_certificate(context), key.get()) != 1) {
    ERR_clear_error();
    return refuse(kWhat, path, "does not belong to the certificate '" + certificate + "'");
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) return refuse(kWhat, path, "cannot be used (" + reason() + ")");
  return success();
}

}  // namespace

Result<std::shared_ptr<TlsContext const>> TlsContext::load(std::string const& certificate, std::string const& key) {
  ERR_clear_error();
  Context context{SSL_CTX_new(TLS_server_method())};
  if (!context) return fail(ErrorKind::io, Layer::request, "no TLS: " + reason());
  (void)SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  (void)SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  (void)SSL_CTX_set_mode(context.get(),
                         SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  (void)SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  if (auto used = use_certificates(context.get(), certificate); !used) return tl::unexpected(std::move(used.error()));
  if (auto used = use_key(context.get(), key, certificate); !used) return tl::unexpected(std::move(used.error()));
  auto notices = notices_of(SSL_CTX_get0_certificate(context.get()), certificate, key);
  return std::make_shared<OpenSslContext const>(std::move(context), std::move(notices));
}

}  // namespace headroom::exporter
