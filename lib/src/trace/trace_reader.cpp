#include <headroom/trace.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include "trace/byte_source.hpp"
#include "trace/record_reader.hpp"

namespace headroom {

std::string_view to_string(TraceEvent::Action action) noexcept {
  switch (action) {
    case TraceEvent::Action::allocate: return "allocate";
    case TraceEvent::Action::allocate_failure: return "allocate failure";
    case TraceEvent::Action::free: return "free";
  }
  return "unknown";
}

std::string_view to_string(TraceCompression compression) noexcept {
  switch (compression) {
    case TraceCompression::none: return "none";
    case TraceCompression::xz: return "xz";
    case TraceCompression::gzip: return "gzip";
  }
  return "unknown";
}

std::string_view record_word(TraceFormat format) noexcept { return format == TraceFormat::torch_snapshot ? "entry" : "line"; }

std::string record_place(std::string_view name, TraceFormat format, std::uint32_t device, std::uint64_t line) {
  auto const number = std::to_string(line);
  if (format == TraceFormat::rmm_csv) return std::string{name} + ':' + number;
  auto const of_device = std::string{name} + ": device " + std::to_string(device);
  return line == 0 ? of_device + ", before entry 1" : of_device + ", entry " + number;
}

namespace {

/// What the first bytes of a pickle are, from protocol 2 on; before, there was none.
constexpr auto kProtocolOpcode = '\x80';

/// A source of which some bytes were looked at.
class LookedInto final : public trace::ByteSource {
public:
  explicit LookedInto(std::unique_ptr<trace::ByteSource> rest) : rest_{std::move(rest)} {}

  /// Two bytes where the first one is a pickle's, else one: a recording that goes on may have no more to give yet. Fewer only at the end.
  [[nodiscard]] Result<std::string_view> look() {
    while (seen_ == 0 || (seen_ == 1 && bytes_[0] == kProtocolOpcode)) {
      auto const count = rest_->read(std::span{bytes_}.subspan(seen_, 1));
      if (!count) return tl::unexpected{count.error()};
      if (*count == 0) break;
      seen_ += *count;
    }
    return std::string_view{bytes_.data(), seen_};
  }

  [[nodiscard]] Result<std::size_t> read(std::span<char> buffer) override {
    if (delivered_ == seen_) [[likely]]
      return rest_->read(buffer);
    auto const count = std::min(buffer.size(), seen_ - delivered_);
    std::copy_n(bytes_.data() + delivered_, count, buffer.data());
    delivered_ += count;
    return count;
  }

private:
  std::unique_ptr<trace::ByteSource> rest_;
  std::array<char, 2> bytes_{};
  std::size_t seen_ = 0;
  std::size_t delivered_ = 0;
};

[[nodiscard]] Result<std::unique_ptr<trace::RecordReader>> reader_of(std::string name, Result<trace::OpenedSource> source) {
  if (!source) return tl::unexpected{std::move(source.error())};
  auto bytes = std::make_unique<LookedInto>(std::move(source->bytes));
  auto const first_bytes = bytes->look();
  if (!first_bytes) return tl::unexpected{first_bytes.error()};
  auto const is_pickle = first_bytes->starts_with(kProtocolOpcode);
  auto const has_known_protocol = first_bytes->size() == 2 && first_bytes->back() >= 2 && first_bytes->back() <= 5;
  if (is_pickle && !has_known_protocol) {
    auto const what = first_bytes->size() == 1
                          ? std::string{"a pickle that ends after its first byte"}
                          : "a pickle of protocol " + std::to_string(static_cast<unsigned char>(first_bytes->back()));
    return fail(ErrorKind::parse, Layer::request, name + ": byte 0: " + what + "; " + std::string{trace::kKnownFormats});
  }
  source->bytes = std::move(bytes);
  if (is_pickle) return trace::make_snapshot_reader(std::move(name), std::move(*source));
  return trace::make_csv_reader(std::move(name), source->compression, std::move(source->bytes));
}

}  // namespace

TraceReader::TraceReader(std::unique_ptr<trace::RecordReader> reader) noexcept : reader_{std::move(reader)} {}
TraceReader::TraceReader(TraceReader&&) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&&) noexcept = default;
TraceReader::~TraceReader() = default;

Result<TraceReader> TraceReader::open(std::string path) {
  auto name = path == "-" ? std::string{"standard input"} : path;
  auto source = trace::open_byte_source(path, name);
  return reader_of(std::move(name), std::move(source)).map([](auto reader) { return TraceReader{std::move(reader)}; });
}

Result<TraceReader> TraceReader::resume(int descriptor, std::string_view first_bytes, std::string name) {
  auto source = trace::resume_byte_source(descriptor, first_bytes, name);
  return reader_of(std::move(name), std::move(source)).map([](auto reader) { return TraceReader{std::move(reader)}; });
}

Result<std::span<TraceEvent const>> TraceReader::next_batch() { return reader_->next_batch(); }
Result<bool> TraceReader::next(TraceEvent& event) { return reader_->next(event); }

TraceFormat TraceReader::format() const noexcept { return reader_->format(); }
std::span<std::uint32_t const> TraceReader::devices() const noexcept { return reader_->devices(); }
std::string_view TraceReader::name_of(std::uint32_t id) const noexcept { return reader_->name_of(id); }
std::string TraceReader::stack_of(std::uint32_t site) const { return reader_->stack_of(site); }
TorchSnapshot const* TraceReader::snapshot() const noexcept { return reader_->snapshot(); }
std::string const& TraceReader::name() const noexcept { return reader_->name(); }
TraceCompression TraceReader::compression() const noexcept { return reader_->compression(); }
std::span<std::uint64_t const> TraceReader::thread_ids() const noexcept { return reader_->thread_ids(); }

Result<void> TraceReader::only_device(std::uint32_t device) {
  auto const known = reader_->devices();
  if (std::ranges::find(known, device) != known.end()) {
    reader_->only_device(device);
    return {};
  }
  auto const there = known.empty() ? std::string{"; expected one that has records, and none has"}
                                   : "; expected one that has records: " + trace::list_of(known);
  return fail(ErrorKind::invalid_argument, Layer::request,
              name() + ": device " + std::to_string(device) + " has no records" + there);
}

namespace trace {

std::string list_of(std::span<std::uint32_t const> devices) {
  std::string text;
  for (auto const device : devices) {
    if (!text.empty()) text += ", ";
    text += std::to_string(device);
  }
  return text;
}

}  // namespace trace
}  // namespace headroom
