// What a Timeline plays as a memory snapshot of PyTorch: a pickle that its memory_viz (the page and the module) opens.
//
//   device_traces         a list for each device (torch_devices.hpp says which): what happened
//   external_annotations  runs of hooks as spans, marks as spans without length; those of a snapshot as they are in it, of the devices
//                         that are shown; at most kMostAnnotations
//   segments              what is live at the end
//   allocator_settings    {}
//   headroom              of what it was made, which device is which, and what the snapshot could not show
//
// Sizes are the bytes that were requested, in blocks and segments too: headroom has no cache. So each live block is a segment of its own,
// which is made just before (segment_alloc) and gone just after (segment_free), as the state that the page shows at each event wants it;
// reserved = allocated = requested. A block is free at once: free_requested and free_completed come together.
//
//   category       the tag; "untagged" without one; "unattributed" for bytes that the books have in blocks which nobody saw
//   user_metadata  the manager
//   frames         the site of the allocation, on the entries of its free too
//   time_us        wall clock, or the history's own clock where it has no dates
//   stream         0 where none is recorded
//   oom            a request that was refused for lack of memory or budget. device_free is the device's where it is known, else what
//                  was left of the budget, else 0: PyTorch's tools need a number
//
// Blocks from before the record have no entry of their allocation: tools take them from segments, and from frees without one. Each trace
// ends with a `snapshot` entry, when the books were read; its category "unknown" is the one that the page gives to blocks without any,
// and looks for.
//
// For every manager, at every entry but in the middle of a gap: bytes of blocks shown as live = bytes allocated by its books.
//
// One device streams. Of a flight file or dump with several, what happened on the others is kept until the first is written: at most what
// its rings hold. Of a history of several, which has them one after the other, nothing is kept. Otherwise memory goes with what is live.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dump/byte_sink.hpp"
#include "dump/format_writer.hpp"
#include "dump/pickle_stream.hpp"
#include "dump/timeline.hpp"
#include "dump/torch_devices.hpp"
#include "dump/torch_places.hpp"

namespace headroom::dump {

class TorchWriter final : public FormatWriter {
public:
  static constexpr std::size_t kMostAnnotations = std::size_t{1} << 16U;

  explicit TorchWriter(ByteSink& sink);

  void begin(TimelineProcess const& process) override;
  void ledger(TimelineLedger const& ledger) override;
  void before(TimelineBlock const& block) override;
  void operation(TimelineOperation const& operation) override;
  void gap(TimelineGap const& gap) override;
  void note(TimelineNote const& note) override;
  void end(TimelineEnd const& end) override;
  [[nodiscard]] bool stopped() const noexcept override { return pickle_.error() != 0; }

  /// A play that did not come to its end leaves half a pickle.
  [[nodiscard]] Result<void> finish() override;
  /// Entries, of all devices.
  [[nodiscard]] std::uint64_t written() const noexcept override { return written_; }

private:
  static constexpr std::uint32_t kUnattributed = ~std::uint32_t{0};  // in place of a tag
  static constexpr std::size_t kMostOpenSpans = std::size_t{1} << 12U;

  struct Record {
    enum class Kind : std::uint8_t { allocate, free, refusal };
    Kind kind{};
    std::uint32_t ledger = 0, tag = 0, site = 0;
    std::uint64_t time_us = 0, address = 0, bytes = 0, stream = 0;
    std::uint64_t device_free = 0;  // of a refusal
  };
  /// A manager's bytes: of blocks, and the rest, which is shown as one block.
  struct Manager {
    std::string name{};
    bool is_account = false;      // of a device: its bytes are its managers'
    std::uint64_t allocated = 0;  // by the books
    std::uint64_t known = 0;      // … of blocks that are shown
    std::uint64_t rest = 0;       // … and shown as the one block; may be behind while assumed operations come
    std::uint64_t place = 0;      // of that block, where `allocates`
    bool allocates = false;       // its allocation has an entry; false: it is from before
    bool is_behind = false;
  };
  struct Annotation {
    bool begins = false;
    std::int64_t device = 0;  // its place; of a snapshot's the ordinal, whose device may come later
    std::uint64_t time_us = 0, thread = 0;
    std::string_view name{};
  };

  [[nodiscard]] std::uint64_t to_us(std::uint64_t time_ns) const noexcept;
  [[nodiscard]] Record record_of(TimelineBlock const& block, std::uint64_t time_us) const noexcept;
  void allocate(TimelineBlock const& block, std::uint64_t time_us);
  void release(TimelineOperation const& operation, std::uint64_t time_us);
  void catch_up(std::uint32_t ledger, std::uint64_t time_us);
  void set_rest(std::uint32_t ledger, std::uint64_t bytes, std::uint64_t time_us);
  void refuse(TimelineNote const& note);
  void annotate(TimelineNote const& note);
  void begin_span(Annotation annotation, bool has_length);
  void end_span(Annotation annotation);
  void close_spans(std::uint64_t time_us);

  void take(std::uint32_t device, Record const& record);
  void open_first();
  void open_trace();
  void close_trace();
  void advance_to(std::uint32_t device);
  void write(Record const& record);
  void write_entry(std::string_view action, Record const& record);
  void write_segments();
  void write_segment(std::uint32_t device, std::uint64_t place, TorchPlaced const& block);
  void write_annotations();
  void write_origin(TimelineEnd const& end);
  [[nodiscard]] std::string_view category(std::uint32_t tag) const noexcept;
  [[nodiscard]] TorchPlaces& places_of(std::uint32_t ledger);
  [[nodiscard]] std::uint32_t device_of(TimelineNote const& note);

  std::array<char, std::size_t{64} << 10U> buffer_{};
  PickleStream pickle_;
  TimelineNames const* names_ = nullptr;
  bool is_history_ = false;
  std::string title_{}, program_{};
  std::uint64_t pid_ = 0;
  std::uint64_t base_ns_ = 0;  // what to add to the Timeline's times
  std::uint64_t last_us_ = 0;  // of the list that is being written
  std::uint64_t end_us_ = 0;   // once it is known

  TorchDevices devices_{};
  std::vector<Manager> managers_{};          // by ledger id
  std::vector<TorchPlaces> places_{};        // by device
  std::vector<std::vector<Record>> kept_{};  // by device: what is to be written when its turn comes
  std::uint32_t open_ = 0;                   // the device whose list is being written
  bool is_open_ = false;
  bool has_entries_ = false;  // … in that list

  std::set<std::string, std::less<>> span_names_{};  // that annotations point to
  std::vector<Annotation> annotations_{};
  std::vector<Annotation> spans_{};  // that have begun, oldest first
  std::uint64_t annotations_left_out_ = 0;
  std::uint64_t entries_left_out_ = 0;
  std::uint64_t written_ = 0;
  bool is_whole_ = false;
};

[[nodiscard]] std::unique_ptr<FormatWriter> make_torch_writer(ByteSink& sink, ConvertOptions const& options);

}  // namespace headroom::dump
