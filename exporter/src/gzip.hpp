// headroom: gzip (RFC 1952), for answers that are made piece by piece or as a whole.
//
// At zlib's fastest level: a scrape shrinks to a tenth at once, and to little less at ten times the price.
//
// Thread safety: one thread at a time. Errors: std::bad_alloc; std::runtime_error where zlib cannot start.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace headroom::exporter {

class Gzip {
public:
  Gzip();
  ~Gzip();
  Gzip(Gzip const&) = delete;
  Gzip& operator=(Gzip const&) = delete;

  /// What is ready to be sent after these bytes; often nothing.
  [[nodiscard]] std::string add(std::string_view bytes);
  /// The rest. Nothing may be added after it.
  [[nodiscard]] std::string finish();

private:
  struct State;
  std::unique_ptr<State> state_;
};

inline constexpr std::size_t kWorthPacking = 256;  ///< bytes; less fits into one packet either way

[[nodiscard]] std::string gzipped(std::string_view bytes);

}  // namespace headroom::exporter
