// libFuzzer: whatever a dump says, its reader answers with an error that names it, or with structs that can be used.
//
// What it takes as whole must be JSON to a strict parser too, and a dump of which the last byte is missing must load as well.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <headroom/post_mortem_reader.hpp>

namespace {

void expect(bool good, std::string const& what) {
  if (good) return;
  static_cast<void>(std::fprintf(stderr, "post_mortem_reader_fuzz: %s\n", what.c_str()));
  std::abort();
}

volatile std::uint64_t used = 0;

void use(headroom::PostMortem const& dump) {
  const auto clock = dump.clock();
  std::uint64_t sum = clock.realtime_ns(0) ^ clock.monotonic_ns(~std::uint64_t{0}) ^ clock.duration_ns(1);
  for (auto const& event : dump.events) {
    expect(event.kind != headroom::flight::EventKind::none, "an event of no kind");
    sum += event.bytes() ^ event.words[7] ^ clock.realtime_ns(event.ticks);
  }
  for (auto const& ledger : dump.ledgers)
    sum += ledger.failures() + ledger.remaining().value_or(0) + dump.label(ledger.directory_id).size();
  for (auto const& allocation : dump.live) sum += allocation.bytes + dump.label(allocation.tag).size();
  used = sum;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it so
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<char const*>(data), size};
  const auto dump = headroom::read_post_mortem(text, "input");
  if (!dump) {
    expect(dump.error().message.starts_with("input: ") && dump.error().message.size() > 8, "a message without a name or reason");
    return 0;
  }
  use(*dump);
  expect(dump->truncated == !nlohmann::json::accept(text), "taken as whole and no JSON, or JSON and taken as truncated");
  if (text.size() > 1) {
    // Without its last byte it loads too, unless that was the last one of the word by which a dump in another order is known.
    const std::string_view less = text.substr(0, text.size() - 1);
    const auto shorter = headroom::read_post_mortem(less, "input");
    if (shorter) use(*shorter);
    expect(shorter.has_value() || !headroom::looks_like_post_mortem(less),
           "one byte less makes it an error: " + (shorter ? std::string{} : shorter.error().message));
  }
  return 0;
}
