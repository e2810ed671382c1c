// headroom: who may read the metrics: a file of `user:hash` lines, as `htpasswd -B` writes them, and HTTP's basic authentication.
//
// Only bcrypt hashes ($2y$, $2b$, $2a$): the others of htpasswd are too weak or not to be had everywhere. Empty lines and lines that
// begin with # are skipped. A password of more than 72 bytes is denied: bcrypt, and with it what makes such files, looks at no more, so
// that whatever begins with the same 72 bytes would do.
//
// What requests cost is bounded. A hash's cost is at most 12; one password is checked at a time, in the order of asking, and at most
// kMostChecks wait or are checked: the next one is told at once that nobody can tell now. Whoever was let in with the same words before
// is let in without a check and waits for nobody. A check takes as many rounds for each user as for one that there is not, those of the
// dearest hash: how long it takes says nothing about which names there are.
//
// Thread safety: access_of() from any thread. Cost: that of the dearest hash (4 ms at htpasswd's default, 128 times that at 12), a
// microsecond for who comes again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <headroom/error.hpp>

#include "access.hpp"
#include "fair_mutex.hpp"

namespace headroom::exporter {

class PasswordFile {
public:
  static constexpr unsigned kMostChecks = 4;
  /// bcrypt: the hash of a password by a setting ($2y$12$ and a salt), empty where there is none.
  using Crypt = std::function<std::string(std::string const& password, std::string const& setting)>;

  /// Errors: io (it cannot be read, is empty), parse (the line's number, what is wrong and what was expected; never a hash).
  [[nodiscard]] static Result<std::shared_ptr<PasswordFile>> load(std::string const& path);

  /// `hashes` by user, all of them good. Tests bring a `crypt` of their own.
  PasswordFile(std::map<std::string, std::string, std::less<>> hashes, Crypt crypt);

  /// `authorization`: the value of that header.
  [[nodiscard]] Access access_of(std::string_view authorization);

private:
  using Digest = std::array<unsigned char, 32>;
  [[nodiscard]] Digest digest_of(std::string_view text) const;
  [[nodiscard]] bool is_admitted(std::string_view user, Digest const& digest);
  [[nodiscard]] bool is_right(std::string_view user, std::string const& password) const;

  std::map<std::string, std::string, std::less<>> hashes_;
  Crypt crypt_;
  std::string dearest_;              // checked for users that there are not
  Digest salt_{};                    // of digest_of
  std::atomic<unsigned> checks_{0};  // that wait or go on; any thread, relaxed: a count
  FairMutex crypt_mutex_;            // held while a password is checked, so that checks do not crowd out the rest
  std::mutex mutex_;                 // guards admitted_; never held over a hash
  std::map<std::string, Digest, std::less<>> admitted_;  // by user: the words that were right
};

}  // namespace headroom::exporter
