// libFuzzer: whatever a flight file says, its post-mortem is strict JSON, and the reader of dumps takes it as whole.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "compact_flight.hpp"
#include "flight_mutator.hpp"
#include "post_mortems.hpp"

using namespace headroom::flight;  // NOLINT(google-build-using-namespace): libFuzzer's functions are global

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it so
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

void expect(bool good, std::string const& what) {
  if (good) return;
  static_cast<void>(std::fprintf(stderr, "post_mortem_writer_fuzz: %s\n", what.c_str()));
  std::abort();
}

void check(FlightView const& view, headroom::test::Writing const& how) {
  const std::string text = headroom::test::post_mortem_text(view, how);
  expect(nlohmann::json::accept(text), "no JSON to a strict parser");
  const auto dump = headroom::read_post_mortem(text, "dump");
  expect(dump.has_value(), "the reader refuses it: " + (dump ? std::string{} : dump.error().message));
  expect(!dump->truncated, "the reader finds it truncated");
  expect(dump->reason == how.reason, "the reason is another one");
  for (auto const& ledger : dump->ledgers) {
    expect(ledger.allocated <= ledger.claimed && ledger.allocated <= ledger.peak, "allocated above claimed or peak");
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it so
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  const AlignedBytes file{std::as_bytes(std::span{data, size})};
  const auto view = FlightView::over(file.bytes(), "input");
  if (!view) return 0;  // flight_reader_fuzz looks at refusals
  // The end of the file stands for a reason of any bytes.
  const std::string_view reason{reinterpret_cast<char const*>(data) + size - 16, 16};
  check(*view, {.options = {.events = true, .most_live = 3}, .liveness = headroom::flight::Liveness::dead, .reason = reason});
  check(*view, {.options = {.events = true}, .liveness = headroom::flight::Liveness::living, .reason = reason});
  // And for a failure of any words, as the process itself knows one.
  headroom::Error error = headroom::make_error(static_cast<headroom::ErrorKind>(data[size - 1] % headroom::kErrorKindCount),
                                               static_cast<headroom::Layer>(data[size - 2] % headroom::kLayerCount),
                                               std::string(std::size_t{data[size - 3]} * 600, static_cast<char>(data[size - 4])));
  error.requested = 4'096;
  std::memcpy(&*error.requested, data + size - 12, sizeof(std::uint64_t));
  error.device_free = error.requested;
  if ((data[size - 5] & 1U) != 0) error.device_total = error.requested;
  const headroom::dump::KnownFailure failure{
      .error = error, .ledger_cell = data[size - 6], .tag = data[size - 7], .site = data[size - 8], .thread = data[size - 5]};
  check(*view, {.liveness = headroom::flight::Liveness::living, .reason = reason, .failure = &failure});
  return 0;
}

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it so
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  if (seed % 8 == 0 || size < sizeof(FileHeader)) return LLVMFuzzerMutate(data, size, max_size);
  return FlightMutator{std::as_writable_bytes(std::span{data, max_size}), size, seed}.mutate();
}
