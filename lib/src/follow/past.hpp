// headroom: the bounded past of one ledger.
//
//   segment ─────────────────────────────┬─ gap ─┬─ segment ──────────────
//   chunk            │ chunk             │       │ chunk
//   base  k   k   k  │ base  k   k   k   │       │ base  k   k
//
// A segment is a stretch without a missing operation. It is cut into chunks, which are forgotten whole, oldest first: each begins
// with all blocks that were live then (`base`), and has keyframes (k), the sums every kKeyframeSteps operations with the range of
// each tag up to the next one. So an instant's sums are a keyframe and a few operations, and its blocks a base and a chunk. The range
// of what is allocated is kept for every kHeightSteps operations: a plot of any width looks at few of them one by one.
//
// What is known of a segment's base is what the live table showed and what was freed later in it. Frees of blocks that nobody knew
// are added to the base when they turn up: they were live from the segment's begin. So blocks that are known were live, always, and
// `allocated − known` is what belongs to blocks that were never seen. Such a block belongs in every keyframe before its free: those
// that turn up in one read are noted, and settle() adds them all in one walk.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include <headroom/flight_format.hpp>
#include <headroom/follow_answers.hpp>

#include "trace/live_blocks.hpp"

namespace headroom::follow {

/// An operation that changed `alloc`. Tags and sites are numbers of Names.
struct Step {
  std::uint64_t ticks = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t allocated = 0;  // after it
  std::uint32_t site = 0;
  std::uint32_t thread = 0;
  std::uint32_t duration_ns = 0;
  std::uint16_t tag = 0;
  flight::EventKind kind = flight::EventKind::none;
  std::uint8_t bits = 0;

  static constexpr std::uint8_t kPressure = 7, kRecovered = 8, kUntracked = 16, kUnmatched = 32;
  [[nodiscard]] bool adds() const noexcept { return kind == flight::EventKind::allocate; }
};
static_assert(sizeof(Step) == 48);

struct Block {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ticks = 0;  // of its allocation, 0 = unknown
  std::uint32_t site = 0;
  std::uint32_t thread = 0;
  std::uint16_t tag = 0;
  bool untracked = false;  // has no slot in the live table
};

struct TagPoint {
  std::uint64_t bytes = 0;
  std::uint64_t allocations = 0;
};

/// What a ledger holds after some step.
struct Sums {
  std::uint64_t allocated = 0;
  std::uint64_t highest = 0;  // largest `allocated` since the segment began
  std::uint64_t known = 0;    // of allocated: in blocks that were seen
  std::uint64_t blocks = 0;
  std::vector<TagPoint> tags;  // by number

  void add(std::uint16_t tag, std::uint64_t bytes);
  void remove(std::uint16_t tag, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t unattributed() const noexcept { return allocated > known ? allocated - known : 0; }
};

struct Range {
  std::uint64_t low = 0, high = 0;
};

struct Keyframe {
  std::size_t at = 0;  // steps of the chunk before it
  Sums sums;
  std::vector<Range> tags;  // from here to the next keyframe, both ends included; a tag that is not here held nothing
};

struct Segment {
  std::uint64_t number = 0;
  bool from_birth = false;        // nothing of the ledger is before it
  std::uint64_t missing = 0;      // operations lost before it, modulo 2^20; 0 = not known
  std::uint64_t begin_ticks = 0;  // of its first step, or of the look at the live table
  bool continues = false;         // no gap before it: only the peak was reset, or another owner began
  bool is_whole = true;           // the live table was read for its base, or there was nothing to find in it
  bool is_new_owner = false;      // the ledger's cell was reopened here: nothing before it is this owner's
  // Where the books' peak was reached. `candidate`: as read at the last poll, and not judged yet.
  enum class PeakWas : std::uint8_t { unknown, before, within };
  PeakWas peak_was = PeakWas::unknown;
  std::uint64_t peak = 0;
  std::optional<std::uint64_t> candidate;
};

struct Chunk {
  std::uint64_t begin_ticks = 0;
  std::uint64_t segment = 0;
  std::vector<Block> base;
  std::vector<Step> steps;
  std::vector<Keyframe> keyframes;  // the first one at 0
  std::vector<Range> heights;       // of `allocated` after each of kHeightSteps steps; the last may be of fewer
  [[nodiscard]] std::size_t memory() const noexcept;
};

class LedgerPast {
public:
  static constexpr std::size_t kKeyframeSteps = 1024;
  static constexpr std::size_t kHeightSteps = 64;

  explicit LedgerPast(std::size_t chunk_steps) : chunk_steps_{chunk_steps} {}

  /// What is known at the begin of a segment. `allocated`: before its first step.
  struct Start {
    std::uint64_t ticks = 0;
    std::uint64_t allocated = 0;
    std::uint64_t missing = 0;
    bool from_birth = false;
    std::uint64_t looked_ticks = 0;  // when the live table was read, 0 = it was not
    bool is_whole = true;            // `live` is all that had a slot in it
    std::vector<Block> live;
  };
  void begin_segment(Start start);
  [[nodiscard]] bool has_segment() const noexcept { return !segments_.empty(); }
  /// The next operation of the ledger. Its ticks are raised to those of the one before it.
  void apply(Step step);
  /// Another manager began to use the ledger's cell, which held nothing then: a peak of its own begins.
  void reopen(std::uint64_t ticks);
  /// After the operations of a read, before any question.
  void settle();
  /// The books' peak as of this poll. `settled`: no operation is known to be on its way; `final`: none can be.
  void note_book_peak(std::uint64_t peak, bool settled, bool final);
  /// The books know of operations that are not here yet, or never will be: after the last one nothing is known for certain.
  void note_behind(bool is_behind) noexcept { is_behind_ = is_behind; }
  void forget_oldest();

  /// Where an instant lies. `chunk` is absent when nothing is known of it.
  struct Place {
    Chunk const* chunk = nullptr;
    std::size_t steps = 0;  // of the chunk, up to the instant
    Known known = Known::forgotten;
    std::uint64_t missing = 0;
  };
  [[nodiscard]] Place find(std::uint64_t ticks) const;
  [[nodiscard]] Sums sums_at(Place const& place) const;
  [[nodiscard]] std::vector<Block> live_at(Place const& place) const;
  [[nodiscard]] Step const* step_before(Place const& place) const;  ///< the last one that counts; absent: the base
  [[nodiscard]] std::optional<std::uint64_t> peak_at(Place const& place, Sums const& sums) const;
  /// Right after the operation, at or after `since`, that made `bytes` the peak; no chunk when that is not in the past.
  [[nodiscard]] Place find_peak(std::uint64_t bytes, std::uint64_t since) const;

  [[nodiscard]] std::deque<Chunk> const& chunks() const noexcept { return chunks_; }
  [[nodiscard]] Segment const& segment_of(Chunk const& chunk) const noexcept;
  [[nodiscard]] std::vector<Block> live() const;
  [[nodiscard]] Sums const& sums() const noexcept { return sums_; }
  [[nodiscard]] std::uint64_t last_ticks() const noexcept { return last_ticks_; }
  [[nodiscard]] bool is_behind() const noexcept { return is_behind_; }
  [[nodiscard]] std::size_t memory() const noexcept { return memory_; }
  [[nodiscard]] std::uint64_t forgotten() const noexcept { return forgotten_; }
  [[nodiscard]] std::uint64_t unmatched() const noexcept { return unmatched_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::uint64_t segment_count() const noexcept { return next_segment_; }

private:
  struct Held {
    std::uint64_t ticks = 0;
    std::uint32_t site = 0;
    std::uint32_t thread = 0;
    std::uint16_t tag = 0;
    bool untracked = false;
  };
  using Live = trace::LiveBlocks<Held>;

  static void change(Live& live, Step const& step);
  static Block to_block(std::uint64_t address, Live::Live const& live);
  void begin_chunk(std::uint64_t ticks, std::vector<Block> base);
  void add_keyframe();
  void append(Step const& step);
  void allocate(Step const& step, std::uint64_t stamped);
  void release(Step& step);
  bool was_seen_early(Step const& step, std::uint64_t stamped);
  void add_to_base(Block const& block);
  void take_from_base(Block const& block);
  [[nodiscard]] std::size_t first_chunk_of_segment() const noexcept;
  void begin_continuation(std::uint64_t ticks, std::uint64_t peak, bool is_new_owner);

  std::size_t chunk_steps_;
  Live live_;
  Sums sums_;
  std::deque<Chunk> chunks_;
  std::deque<Segment> segments_;
  // A block that turned up with its free. The base of that chunk and that keyframe have it; those before them do not yet.
  struct Late {
    Block block;
    std::size_t chunk = 0;
    std::size_t keyframe = 0;
  };
  std::vector<Late> late_;  // in the order of the frees, so of the places
  std::uint64_t late_bytes_ = 0;
  std::uint64_t next_segment_ = 0;
  std::uint64_t last_ticks_ = 0;
  std::uint64_t looked_ticks_ = 0;
  bool is_behind_ = false;
  std::size_t memory_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t forgotten_ = 0;
  std::uint64_t unmatched_ = 0;
};

}  // namespace headroom::follow
