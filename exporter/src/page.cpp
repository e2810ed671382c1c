#include "page.hpp"

#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include <sys/random.h>

#include "negotiation.hpp"

namespace headroom::exporter {
namespace {

std::string fresh_nonce() {
  std::array<unsigned char, 16> bytes{};
  // So few bytes come whole.
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw std::system_error(errno, std::generic_category(), "getrandom");
  }
  std::string nonce;
  for (const auto byte : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    nonce += kDigits[byte >> 4U];
    nonce += kDigits[byte & 0xFU];
  }
  return nonce;
}

constexpr Offer kOfferedHtml{.type = "text/html", .version = ""};
constexpr Offer kOfferedText{.type = "text/plain", .version = ""};

}  // namespace

Reply status_page() {
  const auto nonce = fresh_nonce();
  std::string html{status_page_source()};
  for (auto at = html.find(kNonceMark); at != std::string::npos; at = html.find(kNonceMark, at + nonce.size())) {
    html.replace(at, kNonceMark.size(), nonce);
  }
  const auto policy = "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce +
                      "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
  return {.body = std::move(html),
          .content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy", policy},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"Referrer-Policy", "no-referrer"}},
          .varies_by_accept = true};
}

std::optional<Reply> status_page_if_preferred(Request const& request) {
  if (!prefers(request.accept, kOfferedHtml, kOfferedText)) return std::nullopt;
  return status_page();
}

}  // namespace headroom::exporter
