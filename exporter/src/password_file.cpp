#include "password_file.hpp"

#include <algorithm>
#include <charconv>
#include <new>
#include <utility>
#include <vector>

#include <crypt.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "small_file.hpp"

namespace headroom::exporter {
namespace {

constexpr std::size_t kHashLength = 60;
constexpr std::size_t kMostUsers = 1'024;
constexpr std::size_t kMostPassword = 72;  // what bcrypt looks at
constexpr unsigned kLeastCost = 4, kMostCost = 12;

/// 0: no hash of bcrypt.
unsigned cost_of(std::string_view hash) {
  const bool is_bcrypt =
      hash.size() == kHashLength && (hash.starts_with("$2y$") || hash.starts_with("$2b$") || hash.starts_with("$2a$"));
  unsigned cost = 0;
  if (!is_bcrypt || hash[6] != '$') return 0;
  const auto [stop, error] = std::from_chars(hash.data() + 4, hash.data() + 6, cost);
  if (error != std::errc{} || stop != hash.data() + 6) return 0;
  constexpr std::string_view kLetters = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  return hash.substr(7).find_first_not_of(kLetters) == std::string_view::npos ? cost : 0;
}

/// What is wrong with a line, and what was expected; empty when it is good.
std::string problem_of(std::string_view user, std::string_view hash, bool has_colon) {
  if (!has_colon) return "has no ':'; expected user:hash";
  if (user.empty()) return "has no user before the ':'; expected user:hash";
  const unsigned cost = cost_of(hash);
  if (cost == 0) return "of user '" + std::string{user} + "' is no bcrypt hash; expected one as `htpasswd -B` writes it ($2y$…)";
  if (cost < kLeastCost || cost > kMostCost) {
    return "of user '" + std::string{user} + "' has a cost of " + std::to_string(cost) + "; expected " +
           std::to_string(kLeastCost) + " to " + std::to_string(kMostCost);
  }
  return {};
}

std::string decoded(std::string_view base64) {
  if (base64.empty() || base64.size() % 4 != 0 || base64.size() > 4'096) return {};
  std::vector<unsigned char> bytes(base64.size() / 4 * 3 + 1);
  const int size =
      EVP_DecodeBlock(bytes.data(), reinterpret_cast<unsigned char const*>(base64.data()), static_cast<int>(base64.size()));
  if (size < 0) return {};
  const auto padding = static_cast<std::size_t>(std::ranges::count(base64.substr(base64.size() - 2), '='));
  return {reinterpret_cast<char const*>(bytes.data()), static_cast<std::size_t>(size) - padding};
}

std::string bcrypt(std::string const& password, std::string const& setting) {
  const auto data = std::make_unique<crypt_data>();
  char const* const made = crypt_r(password.c_str(), setting.c_str(), data.get());
  std::string hash = made == nullptr ? "" : made;
  OPENSSL_cleanse(data.get(), sizeof *data);
  return hash;
}

/// A setting of that cost, its salt taken from the hash.
std::string with_cost(std::string setting, unsigned cost) {
  setting[4] = static_cast<char>('0' + cost / 10);
  setting[5] = static_cast<char>('0' + cost % 10);
  return setting;
}

/// A secret that leaves no trace in memory.
class Secret {
public:
  explicit Secret(std::string text) : text_(std::move(text)) {}
  ~Secret() { OPENSSL_cleanse(text_.data(), text_.size()); }
  Secret(Secret const&) = delete;
  Secret& operator=(Secret const&) = delete;
  [[nodiscard]] std::string const& text() const noexcept { return text_; }

private:
  std::string text_;
};

/// One of the places for checks.
class Place {
public:
  Place(std::atomic<unsigned>& taken, unsigned most) noexcept
      : taken_(taken), is_had_(taken.fetch_add(1, std::memory_order_relaxed) < most) {}
  ~Place() { taken_.fetch_sub(1, std::memory_order_relaxed); }
  Place(Place const&) = delete;
  Place& operator=(Place const&) = delete;
  [[nodiscard]] bool is_had() const noexcept { return is_had_; }

private:
  std::atomic<unsigned>& taken_;
  bool is_had_;
};

}  // namespace

Result<std::shared_ptr<PasswordFile>> PasswordFile::load(std::string const& path) {
  const auto text = read_small_file("auth file", path);
  if (!text) return tl::unexpected(text.error());
  const auto refuse = [&path](std::size_t number, std::string const& why) {
    return fail(ErrorKind::parse, Layer::request, "auth file '" + path + "': line " + std::to_string(number) + " " + why);
  };
  std::map<std::string, std::string, std::less<>> hashes;
  std::size_t number = 0;
  for (std::string_view rest = *text; !rest.empty();) {
    ++number;
    const auto end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    const auto colon = line.find(':');
    const auto user = line.substr(0, colon);
    const auto hash = colon == std::string_view::npos ? std::string_view{} : line.substr(colon + 1);
    if (const auto problem = problem_of(user, hash, colon != std::string_view::npos); !problem.empty()) {
      return refuse(number, problem);
    }
    if (!hashes.emplace(user, hash).second) return refuse(number, "names user '" + std::string{user} + "' again");
    if (hashes.size() > kMostUsers) return refuse(number, "is one user too many; expected at most " + std::to_string(kMostUsers));
  }
  if (hashes.empty())
    return fail(ErrorKind::parse, Layer::request, "auth file '" + path + "': has no user; expected user:hash lines");
  return std::make_shared<PasswordFile>(std::move(hashes), bcrypt);
}

PasswordFile::PasswordFile(std::map<std::string, std::string, std::less<>> hashes, Crypt crypt)
    : hashes_(std::move(hashes)), crypt_(std::move(crypt)) {
  const auto dearest = std::ranges::max_element(hashes_, {}, [](auto const& entry) { return cost_of(entry.second); });
  if (dearest != hashes_.end()) dearest_ = dearest->second;
  if (RAND_bytes(salt_.data(), static_cast<int>(salt_.size())) != 1) salt_ = {};
}

PasswordFile::Digest PasswordFile::digest_of(std::string_view text) const {
  std::string salted{reinterpret_cast<char const*>(salt_.data()), salt_.size()};
  salted += text;
  Digest digest{};
  unsigned size = 0;
  const bool is_made = EVP_Digest(salted.data(), salted.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1;
  OPENSSL_cleanse(salted.data(), salted.size());
  if (!is_made) throw std::bad_alloc{};  // or all of them would be equal
  return digest;
}

bool PasswordFile::is_admitted(std::string_view user, Digest const& digest) {
  const std::lock_guard lock{mutex_};
  const auto known = admitted_.find(user);
  return known != admitted_.end() && CRYPTO_memcmp(known->second.data(), digest.data(), digest.size()) == 0;
}

bool PasswordFile::is_right(std::string_view user, std::string const& password) const {
  const auto found = hashes_.find(user);
  std::string const& hash = found == hashes_.end() ? dearest_ : found->second;
  const std::string made = crypt_(password, hash);
  // 2^cost rounds, then 2^cost, 2^(cost + 1), … up to half of the dearest: as many as that one takes.
  for (unsigned cost = cost_of(hash); cost < cost_of(dearest_); ++cost)
    static_cast<void>(crypt_(password, with_cost(hash, cost)));
  return made.size() == hash.size() && CRYPTO_memcmp(made.data(), hash.data(), hash.size()) == 0 && found != hashes_.end();
}

Access PasswordFile::access_of(std::string_view authorization) {
  constexpr std::string_view kBasic = "basic ";
  const bool is_basic = authorization.size() > kBasic.size() &&
                        std::ranges::equal(authorization.substr(0, kBasic.size()), kBasic, {},
                                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  if (!is_basic) return Access::denied;
  authorization.remove_prefix(kBasic.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  while (authorization.ends_with(' ')) authorization.remove_suffix(1);
  const Secret words{decoded(authorization)};
  const auto colon = words.text().find(':');
  if (colon == std::string::npos) return Access::denied;
  const std::string user = words.text().substr(0, colon);
  const Secret password{words.text().substr(colon + 1)};
  if (password.text().size() > kMostPassword || password.text().find('\0') != std::string::npos) return Access::denied;
  const Digest digest = digest_of(words.text());
  if (is_admitted(user, digest)) return Access::granted;

  const Place place{checks_, kMostChecks};
  if (!place.is_had()) return Access::busy;
  const std::lock_guard lock{crypt_mutex_};
  // By one who came with the same words and was checked first.
  if (is_admitted(user, digest)) return Access::granted;
  if (!is_right(user, password.text())) return Access::denied;
  const std::lock_guard guard{mutex_};
  admitted_.insert_or_assign(user, digest);  // at most as many as there are users
  return Access::granted;
}

}  // namespace headroom::exporter
