// headroom: reads a pickle of plain data, executes nothing, and bounds everything.
//
// A pickle is a program for a stack machine. Of its opcodes only those that make plain values exist here; those that import, call or
// build are refused by their name. It is read twice. scan() checks every opcode and every bound, keeps no content, and counts how often each
// memo entry is fetched; the Machine then makes values, keeps an entry until its last fetch, and hands the items of long lists to a
// Visitor as they come. So values take memory for what is on the stack and for what will be referred to again, and not for the file;
// what scan() counts takes two bits for each container and memo entry, and up to 64 MiB (reuse.hpp). Entries that are fetched 255 times
// or more stay to the end.
//
//   auto const reuse = pickle::scan(*first, name);
//   pickle::Machine machine{*second, name, *reuse, visitor};    // `second`: the same bytes from the beginning
//   for (auto more = machine.advance(); …; more = machine.advance()) {}
//   machine.root().find("segments")
//
// No cycles. A list or dict is sealed as soon as anything but its place on the stack can reach it: when it is put into another
// container, fetched from the memo, duplicated, or dropped from the stack. A sealed one cannot be changed. To close a cycle, a container
// would have to get an item through which it reaches itself; that item can only have come from such an event, after which the
// container takes no items. Tuples never change at all. Picklers write such changes for values that contain themselves, and for no
// others.
//
// Errors, of scan() and advance(): parse, as `NAME: byte N: what was there; expected what`, where N counts bytes of the decompressed
// pickle and is that of the opcode; io (no memory); those of the source and of the visitor, as they are. After an error, or the end, the
// answer stays.
// Thread safety: one thread at a time. Cost: about 10 ns an opcode.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <headroom/error.hpp>

#include "trace/byte_source.hpp"
#include "trace/pickle/limits.hpp"
#include "trace/pickle/path.hpp"
#include "trace/pickle/reuse.hpp"
#include "trace/pickle/value.hpp"

namespace headroom::trace::pickle {

/// The first pass: the whole of `bytes`, to its end.
[[nodiscard]] Result<Reuse> scan(ByteSource& bytes, std::string const& name);

/// Gets the items of lists as they come.
class Visitor {
public:
  Visitor() = default;
  Visitor(Visitor const&) = delete;
  Visitor& operator=(Visitor const&) = delete;
  virtual ~Visitor() = default;

  /// Asked once for each list, when its first item is about to be appended; `list` is its path. True: each of its items goes to item()
  /// and is not kept (Value::taken_items() counts them). Not asked about lists within tuples or keys, and about those that are dropped.
  [[nodiscard]] virtual bool takes_items_of(Path const& list) = 0;
  /// `item` is the item's path: that of the list, and as the last step its index. The value may be kept; it counts as retained then.
  /// An error ends the reading.
  [[nodiscard]] virtual Result<void> item(Path const& item, Value const& value) = 0;
};

/// The second pass. The source, the reuse and the visitor must outlive it; it moves, values stay valid.
class Machine {
public:
  Machine(ByteSource& bytes, std::string name, Reuse const& reuse, Visitor& visitor);
  Machine(Machine&&) noexcept;
  Machine& operator=(Machine&&) noexcept;
  ~Machine();

  /// Works until an opcode has delivered items (true; one of APPEND, up to kMaxStack of APPENDS) or the pickle is over (false).
  [[nodiscard]] Result<bool> advance();

  /// What the pickle is; none before advance() has answered false.
  [[nodiscard]] Value const& root() const noexcept;
  /// Bytes that have been consumed.
  [[nodiscard]] std::uint64_t offset() const noexcept;

  /// For those who can afford less than kMaxRetainedBytes.
  void set_max_retained_bytes(std::uint64_t bytes) noexcept;
  /// Texts, bytes and containers that are alive, in the machine or elsewhere, and their bytes with those of the memo.
  [[nodiscard]] std::uint64_t retained_nodes() const noexcept;
  [[nodiscard]] std::uint64_t retained_bytes() const noexcept;

private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::trace::pickle
