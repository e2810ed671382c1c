// check_flight(): lanes, their rings and every record that can still be read.
#include <string>

#include "flight/check_findings.hpp"

namespace headroom::flight {
namespace {

std::uint64_t load(Word const& word) noexcept { return StdAtomics::load_acquire(word); }

constexpr std::uint64_t kLastKind = static_cast<std::uint64_t>(EventKind::hook_overrun);
constexpr std::uint64_t kLastMainKind = 15;

class Lanes {
public:
  Lanes(MappedFlight const& mapped, CheckFindings& findings) noexcept
      : mapped_{mapped}, findings_{findings}, is_later_{mapped.header().abi_minor > kAbiMinor} {}

  void run() {
    for (std::uint32_t i = 0; i < mapped_.lanes().size(); ++i) {
      auto const& header = mapped_.lanes()[i].header;
      findings_.expect_at_most(load(header.in_flight) >> 60, static_cast<std::uint64_t>(InFlight::dropping), &header.in_flight,
                               "lane " + std::to_string(i) + ": the operation in flight");
      ring(i, Ring::main);
      ring(i, Ring::journal);
    }
  }

private:
  void ring(std::uint32_t lane, Ring which) {
    auto const& header = mapped_.lanes()[lane].header;
    auto const& words = which == Ring::main ? header.main : header.journal;
    auto const name = "lane " + std::to_string(lane) + ", " + (which == Ring::main ? "main" : "journal") + " ring";
    // In this order: the writer announces a block before it publishes a record of it.
    auto const head = load(words.head);
    auto const reserve = load(words.reserve);
    findings_.expect(head <= reserve, &words.reserve, [&] {
      return name + ": announced up to record " + std::to_string(reserve) + "; expected at least the " + std::to_string(head) +
             " that were written";
    });
    if (head == 0) return;
    records(lane, which, name);
  }

  void records(std::uint32_t lane, Ring which, std::string const& name) {
    auto const ring = mapped_.ring(lane, which);
    auto const quiet = findings_.result().quiet;
    RingCursor cursor{.next = quiet ? ring.oldest_quiet() : ring.oldest()};
    LaneRingReader::Words record{};
    // A writer may be faster than this; the ring is never read for longer than it has slots.
    for (auto steps = ring.slots() + 1; steps != 0; --steps) {
      auto const outcome = quiet ? ring.read_quiet(cursor, record) : ring.read(cursor, record);
      if (outcome == RingRead::nothing) return;
      if (outcome == RingRead::overtaken) continue;
      ++findings_.result().records;
      auto const number = cursor.next - 1;
      auto const* const at = ring.slot(number);
      auto const found = record[0];
      findings_.expect(outcome == RingRead::accepted, at, [&] {
        return name + ": record " + std::to_string(number & kRecordNumberMask) + " carries the number " +
               std::to_string(found & kRecordNumberMask) + " and kind " + std::to_string(found >> 56) +
               "; expected its own number, and a kind above 0";
      });
      if (outcome != RingRead::accepted) continue;
      auto const kind = found >> 56;
      auto const fits = (kind <= kLastMainKind) == (which == Ring::main) && (is_later_ || is_known(kind));
      findings_.expect(fits, at, [&] {
        return name + ": record " + std::to_string(number & kRecordNumberMask) + " is of kind " + std::to_string(kind) +
               "; expected one that the format knows in this ring";
      });
    }
  }

  [[nodiscard]] static bool is_known(std::uint64_t kind) noexcept {
    auto const last_of_main = static_cast<std::uint64_t>(EventKind::resource_free);
    return kind <= last_of_main || (kind > kLastMainKind && kind <= kLastKind);
  }

  MappedFlight const& mapped_;
  CheckFindings& findings_;
  bool is_later_;
};

}  // namespace

void check_lanes(MappedFlight const& mapped, CheckFindings& findings) { Lanes{mapped, findings}.run(); }

}  // namespace headroom::flight
