// libFuzzer: whatever bytes are called a pickle, the two passes of its reader end, execute nothing, stay within their bounds, and say
// the same however the bytes come.
//
// The first byte says in what pieces the source gives them, and which lists are taken. Nodes are allocations of their own: what a
// machine would leave behind, or use after its end, the sanitizers report.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.hpp"
#include "trace/pickle/machine.hpp"

namespace {

using headroom::Error;
using headroom::ErrorKind;
using headroom::Result;
namespace pickle = headroom::trace::pickle;

void expect(bool good, std::string const& what) {
  if (good) return;
  static_cast<void>(std::fprintf(stderr, "pickle_fuzz: %s\n", what.c_str()));
  std::abort();
}

class PieceSource final : public headroom::trace::ByteSource {
public:
  PieceSource(std::string_view content, std::size_t piece) : rest_{content}, piece_{piece} {}
  [[nodiscard]] Result<std::size_t> read(std::span<char> buffer) override {
    expect(!buffer.empty(), "a read of nothing");
    auto const count = std::min({buffer.size(), rest_.size(), piece_});
    std::copy_n(rest_.data(), count, buffer.data());
    rest_.remove_prefix(count);
    return count;
  }

private:
  std::string_view rest_;
  std::size_t piece_;
};

/// Everything that can be asked of a value; `budget`: values that are shared often are not walked each time. A sum that any change of
/// a value changes.
std::uint64_t digest(pickle::Value const& value, std::size_t& budget, std::size_t depth = 1) {
  if (budget == 0) return 1;
  --budget;
  expect(depth <= pickle::kMaxDepth + 1U, "a value that is too deep");
  auto sum = std::uint64_t{14'695'981'039'346'656'037U};
  auto const mix = [&](std::uint64_t word) { sum = (sum ^ word) * 1'099'511'628'211U; };
  mix(static_cast<std::uint64_t>(value.type()));
  mix(value.offset());
  mix(value.unsigned_value().value_or(static_cast<std::uint64_t>(value.signed_value().value_or(3))));
  mix(value.boolean() ? 1 : 0);
  for (char const c : value.text()) mix(static_cast<unsigned char>(c));
  for (auto const& item : value.items()) mix(digest(item, budget, depth + 1));
  for (auto const& entry : value.entries()) {
    mix(digest(entry.key, budget, depth + 1));
    mix(digest(entry.value, budget, depth + 1));
    if (entry.key.is(pickle::Type::text)) expect(value.find(entry.key.text()) != nullptr, "a key that is not found");
  }
  mix(value.taken_items());
  return sum;
}

constexpr std::size_t kWalkedValues = 5'000;

/// Takes every list whose path, as a number, has a bit set in `which`.
class Taker final : public pickle::Visitor {
public:
  explicit Taker(std::uint32_t which) : which_{which} {}

  [[nodiscard]] bool takes_items_of(pickle::Path const& list) override {
    asked.push_back(number_of(list));
    return (which_ >> (asked.back() % 5) & 1U) != 0;
  }
  [[nodiscard]] Result<void> item(pickle::Path const& item, pickle::Value const& value) override {
    std::size_t budget = kWalkedValues;
    expect(item.size() != 0 && item.index(item.size() - 1).has_value(), "an item without an index");
    items.push_back(number_of(item) * 31 + digest(value, budget));
    return headroom::success();
  }

  std::vector<std::uint64_t> asked{};
  std::vector<std::uint64_t> items{};

private:
  [[nodiscard]] static std::uint64_t number_of(pickle::Path const& path) {
    expect(path.size() <= pickle::kMaxDepth, "a path that is too long");
    std::uint64_t number = path.size();
    for (std::size_t i = 0; i < path.size(); ++i) {
      auto const* const key = path.key(i);
      expect((key == nullptr) == path.index(i).has_value(), "a step that is neither key nor index, or both");
      std::size_t budget = kWalkedValues;
      number = number * 131 + (key == nullptr ? *path.index(i) : digest(*key, budget));
    }
    return number;
  }

  std::uint32_t which_;
};

constexpr std::string_view kName = "history.pickle";

void check_error(Error const& error, std::size_t size) {
  auto const& message = error.message;
  auto const prefix = std::string{kName} + ": byte ";
  expect(error.kind == ErrorKind::parse && error.layer == headroom::Layer::request, "an error of an unexpected kind: " + message);
  expect(message.starts_with(prefix), "the message does not begin with the name and the byte: " + message);
  expect(std::strtoull(message.c_str() + prefix.size(), nullptr, 10) <= size, "an error behind the end: " + message);
  expect(headroom::valid_utf8(message) == message && message.size() < 400, "a message that is no short, valid UTF-8");
  expect(std::ranges::none_of(message, [](unsigned char c) { return c < 0x20 || c == 0x7F; }), "a control character");
  expect(message.find("; expected") != std::string::npos, "a message that does not say what was expected: " + message);
}

struct Outcome {
  std::string error;
  std::vector<std::uint64_t> asked;
  std::vector<std::uint64_t> items;
  std::uint64_t root = 0;
  friend bool operator==(Outcome const&, Outcome const&) = default;
};

Outcome run(std::string_view content, std::size_t piece, std::uint32_t which, pickle::Reuse const& reuse) {
  Outcome outcome;
  PieceSource source{content, piece};
  Taker taker{which};
  {
    pickle::Machine machine{source, std::string{kName}, reuse, taker};
    machine.set_max_retained_bytes(std::uint64_t{1} << 26U);
    std::size_t before = 0;
    std::uint64_t offset = 0;
    auto more = machine.advance();
    for (; more && *more; more = machine.advance()) {
      expect(taker.items.size() > before, "an advance without an item");
      expect(machine.offset() > offset && machine.offset() <= content.size(), "an advance without a step");
      expect(machine.root().is(pickle::Type::none), "a root before the end");
      before = taker.items.size();
      offset = machine.offset();
    }
    auto const again = machine.advance();
    expect(again.has_value() == more.has_value(), "the answer changed");
    if (!more) {
      expect(again.error().message == more.error().message, "the error changed");
      check_error(more.error(), content.size());
      outcome.error = more.error().message;
    } else {
      expect(!*again && machine.offset() == content.size(), "an end before the end");
      std::size_t budget = kWalkedValues;
      outcome.root = digest(machine.root(), budget);
      expect(machine.retained_nodes() != 0 || machine.retained_bytes() == 0, "bytes of nothing");
      expect((machine.root().identity() == nullptr) == (machine.retained_nodes() == 0), "nodes that nobody can reach");
    }
  }
  outcome.asked = std::move(taker.asked);
  outcome.items = std::move(taker.items);
  return outcome;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it so
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size == 0) return 0;
  std::size_t const piece = (data[0] & 7U) == 0 ? 1 : std::size_t{1} << (data[0] & 7U) << 2U;
  std::uint32_t const which = data[0] >> 3U;
  std::string_view const content{reinterpret_cast<char const*>(data) + 1, size - 1};

  PieceSource whole{content, content.size() + 1};
  auto const reuse = pickle::scan(whole, std::string{kName});
  PieceSource pieces{content, piece};
  auto const again = pickle::scan(pieces, std::string{kName});
  expect(reuse.has_value() == again.has_value(), "a scan that depends on the pieces");
  if (!reuse) {
    check_error(reuse.error(), content.size());
    expect(again.error().message == reuse.error().message, "a scan whose error depends on the pieces");
    // Without a first pass, or after one over other bytes, a machine is still safe; and it finds no less.
    expect(!run(content, piece, which, pickle::Reuse{}).error.empty(), "a machine that takes what the scan refused");
    return 0;
  }
  auto const outcome = run(content, content.size() + 1, which, *reuse);
  expect(outcome == run(content, piece, which, *reuse), "a machine that depends on the pieces");
  auto const kept = run(content, piece, 0, *reuse);
  expect(kept.items.empty(), "items that nobody took");
  if (kept.error.empty()) {
    expect(kept.asked == outcome.asked || !outcome.error.empty(), "taking lists changes which are asked about");
    expect(outcome.error.empty() || outcome.error.find("handed out") != std::string::npos, "taken lists are refused otherwise");
  }
  static_cast<void>(run(content, piece, which, pickle::Reuse{}));
  return 0;
}
