#include "trace/snapshot_fields.hpp"

#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "base/quoted.hpp"
#include "base/utf8.hpp"
#include "trace/pickle/words.hpp"

namespace headroom::trace {
namespace {

using pickle::Type;
using pickle::Value;

constexpr std::size_t kMostAnnotationBytes = 256;

[[nodiscard]] std::string name_of(EntryPlace const& place) {
  return "device " + std::to_string(place.device) + ", entry " + std::to_string(place.number);
}

[[nodiscard]] std::string quoted(Word key) { return '\'' + std::string{kWords[static_cast<std::size_t>(key)]} + '\''; }

/// A field that is there and not None.
[[nodiscard]] bool is_there(Value const* value) noexcept { return value != nullptr && !value->is(Type::none); }

[[nodiscard]] std::optional<TorchBlockState> state_of(std::string_view word) noexcept {
  if (word == "active_allocated") return TorchBlockState::active_allocated;
  if (word == "active_pending_free" || word == "active_awaiting_free") return TorchBlockState::active_pending_free;
  if (word == "inactive") return TorchBlockState::inactive;
  return std::nullopt;
}

/// With keys that may be gone through: a dict that is referred to again costs two bytes of a file, whatever stands in it.
[[nodiscard]] bool is_small_dict(Value const& value) noexcept {
  return value.is(Type::dict) && value.entries().size() <= SnapshotFields::kMostKeys;
}

/// What stood there, for messages; of a text its beginning.
[[nodiscard]] std::string shown(Value const& value) {
  if (value.is(Type::text)) return "the text " + in_quotes(value.text(), 40);
  if (auto const number = value.signed_value()) return std::to_string(*number);
  return std::string{kind_of(value)};
}

}  // namespace

/// A snapshot is told of in Python's words.
std::string_view kind_of(Value const& value) noexcept {
  return value.is(Type::none) ? std::string_view{"None"} : pickle::name_of(value.type());
}

tl::unexpected<Error> SnapshotFields::wrong(Value const& at, std::string const& what) const {
  return fail(ErrorKind::parse, Layer::request, file_ + ": byte " + std::to_string(at.offset()) + ": " + what);
}

tl::unexpected<Error> SnapshotFields::wrong_dict(Value const& at, std::string const& where, std::string_view expected) const {
  if (!at.is(Type::dict)) return wrong(at, where + ": " + std::string{kind_of(at)} + "; expected " + std::string{expected});
  return wrong(at,
               where + ": has " + std::to_string(at.entries().size()) + " keys; expected at most " + std::to_string(kMostKeys));
}

// ── entries ──

Result<EntryFields> SnapshotFields::entry(Value const& value, EntryPlace const& place) const {
  if (!is_small_dict(value)) [[unlikely]]
    return wrong_dict(value, name_of(place), "a dict with an 'action'");
  EntryFields fields;
  Value const* action = nullptr;
  for (auto const& [key, field] : value.entries()) {
    switch (word_of(key)) {
      case Word::action: action = &field; break;
      case Word::addr: fields.address = &field; break;
      case Word::size: fields.bytes = &field; break;
      case Word::stream: fields.stream = &field; break;
      case Word::time_us: fields.time_us = &field; break;
      case Word::frames: fields.frames = &field; break;
      case Word::category: fields.category = &field; break;
      case Word::user_metadata: fields.metadata = &field; break;
      default: break;
    }
  }
  if (action == nullptr) return wrong(value, name_of(place) + ": has no 'action'; expected one, such as 'alloc'");
  if (!action->is(Type::text)) {
    return wrong(*action, name_of(place) + ": 'action' is " + shown(*action) + "; expected a text, such as 'alloc'");
  }
  fields.action = word_of(*action);
  return fields;
}

Result<std::uint64_t> SnapshotFields::number(Value const* value, Word key, Value const& entry, EntryPlace const& place) const {
  if (value != nullptr && value->is_unsigned()) [[likely]]
    return *value->unsigned_value();
  return number_in(value, key, entry, name_of(place));
}

Result<std::uint64_t> SnapshotFields::number_in(Value const* value, Word key, Value const& within,
                                                std::string const& where) const {
  if (value == nullptr) return wrong(within, where + ": has no " + quoted(key) + "; expected an integer from 0 to 2^64 - 1");
  if (auto const number = value->unsigned_value()) return *number;
  return wrong(*value, where + ": " + quoted(key) + " is " + shown(*value) + "; expected an integer from 0 to 2^64 - 1");
}

Result<std::uint64_t> SnapshotFields::stream(EntryFields const& fields, EntryPlace const& place) const {
  if (!is_there(fields.stream)) return 0;
  if (auto const number = fields.stream->unsigned_value()) return *number;
  if (auto const number = fields.stream->signed_value()) return static_cast<std::uint64_t>(*number);
  return wrong(*fields.stream, name_of(place) + ": 'stream' is " + shown(*fields.stream) + "; expected an integer of 64 bits");
}

Result<std::uint64_t> SnapshotFields::time_us(EntryFields const& fields, EntryPlace const& place, std::uint64_t before) const {
  if (!is_there(fields.time_us)) return before;
  if (auto const number = fields.time_us->unsigned_value()) return *number;
  return wrong(*fields.time_us,
               name_of(place) + ": 'time_us' is " + shown(*fields.time_us) + "; expected microseconds as an integer from 0 on");
}

std::uint32_t SnapshotFields::tag(EntryFields const& fields) {
  for (auto const* const text : {fields.category, fields.metadata}) {
    if (text != nullptr && text->is(Type::text) && !text->text().empty()) return names_.tag(text->text());
  }
  return 0;
}

// ── stacks ──

std::uint32_t SnapshotFields::site(Value const* frames) {
  if (frames == nullptr || frames->items().empty()) return 0;
  // A stack that many entries share is looked up once.
  if (auto const known = frames->note(); known != 0) return known - 1;
  std::array<std::uint32_t, SnapshotNames::kMostFrames> numbers{};
  std::size_t count = 0;
  auto const left_out = names_.left_out();
  for (auto const& item : frames->items()) {
    if (count == numbers.size()) break;
    numbers[count++] = frame(item);
  }
  auto const id = names_.stack(std::span{numbers}.first(count));
  // What found no room is asked for again, so that each record of it is counted.
  if (names_.left_out() == left_out) frames->set_note(id + 1);
  return id;
}

std::uint32_t SnapshotFields::frame(Value const& value) {
  if (!is_small_dict(value)) return 0;  // asked first: the notes of lists are ids of stacks
  if (auto const known = value.note(); known != 0) return known - 1;
  std::string_view file;
  std::string_view function;
  std::uint64_t line = 0;
  for (auto const& [key, field] : value.entries()) {
    switch (word_of(key)) {
      case Word::filename: file = field.text(); break;
      case Word::name: function = field.text(); break;
      case Word::line: line = field.unsigned_value().value_or(0); break;
      default: break;
    }
  }
  auto const left_out = names_.left_out();
  auto const number = names_.frame(file, line, function);
  if (names_.left_out() == left_out) value.set_note(number + 1);
  return number;
}

// ── the state at the end ──

Result<TorchSegment> SnapshotFields::segment(Value const& value, std::uint64_t number) {
  auto const where = "segment " + std::to_string(number);
  if (!is_small_dict(value)) return wrong_dict(value, where, "a dict with 'blocks'");
  Value const* address = nullptr;
  Value const* bytes = nullptr;
  Value const* blocks = nullptr;
  Value const* device = nullptr;
  TorchSegment segment;
  for (auto const& [key, field] : value.entries()) {
    switch (word_of(key)) {
      case Word::address: address = &field; break;
      case Word::total_size: bytes = &field; break;
      case Word::blocks: blocks = &field; break;
      case Word::device: device = &field; break;
      case Word::stream:
        segment.stream = field.unsigned_value().value_or(static_cast<std::uint64_t>(field.signed_value().value_or(0)));
        break;
      case Word::segment_type: segment.large = field.text() == "large"; break;
      case Word::is_expandable: segment.expandable = field.boolean(); break;
      default: break;
    }
  }
  auto const at = number_in(address, Word::address, value, where);
  if (!at) return tl::unexpected{at.error()};
  auto const size = number_in(bytes, Word::total_size, value, where);
  if (!size) return tl::unexpected{size.error()};
  if (device != nullptr) {
    auto const ordinal = number_in(device, Word::device, value, where);
    if (!ordinal) return tl::unexpected{ordinal.error()};
    if (*ordinal >= TraceReader::kMaxDevices) {
      return wrong(*device, where + ": 'device' is " + std::to_string(*ordinal) + "; expected one below " +
                                std::to_string(TraceReader::kMaxDevices));
    }
    segment.device = static_cast<std::uint32_t>(*ordinal);
  }
  if (blocks == nullptr || !blocks->is(Type::list)) {
    auto const what = blocks == nullptr ? std::string{"has no 'blocks'"} : "'blocks' is " + shown(*blocks);
    return wrong(blocks == nullptr ? value : *blocks, where + ": " + what + "; expected a list of dicts");
  }
  segment.address = *at;
  segment.bytes = *size;
  auto next_address = segment.address;
  auto const parts = checked_add(blocks->items().size(), 1).value_or(kMaxUint64);
  if (parts > most_blocks_ - blocks_) {
    return wrong(*blocks, where + ": has " + std::to_string(blocks->items().size()) + " blocks, after " +
                              std::to_string(blocks_) + " segments and blocks before it; expected at most " +
                              std::to_string(most_blocks_) + " together");
  }
  blocks_ += parts;
  segment.blocks.reserve(blocks->items().size());
  for (auto const& item : blocks->items()) {
    auto const where_it_is = where + ", block " + std::to_string(segment.blocks.size() + 1);
    auto made = block(item, where_it_is, next_address);
    if (!made) return tl::unexpected{std::move(made.error())};
    auto const behind = checked_add(made->address, made->bytes);
    if (!behind) return wrong(item, where_it_is + ": ends above 2^64; expected addresses of real memory");
    next_address = *behind;
    segment.blocks.push_back(*made);
  }
  std::ranges::sort(segment.blocks, {}, [](TorchBlock const& one) { return std::pair{one.address, one.bytes}; });
  return segment;
}

Result<TorchBlock> SnapshotFields::block(Value const& value, std::string const& where, std::uint64_t next_address) {
  if (!is_small_dict(value)) return wrong_dict(value, where, "a dict");
  Value const* address = nullptr;
  Value const* bytes = nullptr;
  Value const* requested = nullptr;
  Value const* state = nullptr;
  Value const* frames = nullptr;
  EntryFields tagged;
  for (auto const& [key, field] : value.entries()) {
    switch (word_of(key)) {
      case Word::address: address = &field; break;
      case Word::size: bytes = &field; break;
      case Word::requested_size: requested = &field; break;
      case Word::state: state = &field; break;
      case Word::frames: frames = &field; break;
      case Word::category: tagged.category = &field; break;
      case Word::user_metadata: tagged.metadata = &field; break;
      case Word::history:
        // Of 2023: what the block was used for, the newest first.
        if (field.items().empty() || !is_small_dict(field.items().front())) break;
        if (auto const* const size = field.items().front().find("real_size"); size != nullptr && requested == nullptr)
          requested = size;
        if (auto const* const then = field.items().front().find("frames"); then != nullptr && frames == nullptr) frames = then;
        break;
      default: break;
    }
  }
  TorchBlock block;
  auto const size = number_in(bytes, Word::size, value, where);
  if (!size) return tl::unexpected{size.error()};
  block.bytes = *size;
  block.address = next_address;
  if (is_there(address)) {
    auto const at = number_in(address, Word::address, value, where);
    if (!at) return tl::unexpected{at.error()};
    block.address = *at;
  }
  if (is_there(requested)) {
    auto const wanted = number_in(requested, Word::requested_size, value, where);
    if (!wanted) return tl::unexpected{wanted.error()};
    block.requested_bytes = *wanted;
  }
  auto const known = state == nullptr ? std::nullopt : state_of(state->text());
  if (!known) {
    auto const what = state == nullptr ? std::string{"has no 'state'"} : "'state' is " + shown(*state);
    return wrong(state == nullptr ? value : *state,
                 where + ": " + what + "; expected active_allocated, active_pending_free, active_awaiting_free or inactive");
  }
  block.state = *known;
  block.site = site(frames);
  block.tag = tag(tagged);
  return block;
}

std::optional<TorchAnnotation> SnapshotFields::annotation(Value const& value) {
  if (!is_small_dict(value)) return std::nullopt;
  auto const* const stage = value.find("stage");
  auto const* const name = value.find("name");
  if (stage == nullptr || name == nullptr || !name->is(Type::text)) return std::nullopt;
  auto const begins = stage->text() == "START";
  if (!begins && stage->text() != "END") return std::nullopt;
  TorchAnnotation annotation{.begins = begins, .name = valid_utf8(name->text(), kMostAnnotationBytes)};
  if (auto const* const device = value.find("device"); device != nullptr) {
    auto const ordinal = device->unsigned_value();
    if (!ordinal || *ordinal >= TraceReader::kMaxDevices) return std::nullopt;
    annotation.device = static_cast<std::uint32_t>(*ordinal);
  }
  if (auto const* const time = value.find("time_us"); time != nullptr) annotation.time_us = time->unsigned_value().value_or(0);
  return annotation;
}

}  // namespace headroom::trace
