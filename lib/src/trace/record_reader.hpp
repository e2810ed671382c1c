// headroom: what TraceReader asks of a format.
//
// A RecordReader fills batches; how they are handed out, and that an error comes after the records before it and stays, is here.
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <headroom/trace.hpp>

namespace headroom::trace {

class ByteSource;
struct OpenedSource;

class RecordReader {
public:
  RecordReader(std::string name, TraceCompression compression) : name_{std::move(name)}, compression_{compression} {
    events_.reserve(kBatchEvents);
  }
  RecordReader(RecordReader const&) = delete;
  RecordReader& operator=(RecordReader const&) = delete;
  virtual ~RecordReader() = default;

  [[nodiscard]] Result<std::span<TraceEvent const>> next_batch() {
    if (next_ < events_.size()) {  // next() took some of the last batch
      auto const rest = std::span{std::as_const(events_)}.subspan(next_);
      next_ = events_.size();
      return rest;
    }
    refill();
    next_ = events_.size();
    if (events_.empty() && error_) return tl::unexpected{*error_};
    return std::span{std::as_const(events_)};
  }

  [[nodiscard]] Result<bool> next(TraceEvent& event) {
    if (next_ == events_.size()) {
      refill();
      next_ = 0;
      if (events_.empty() && error_) return tl::unexpected{*error_};
      if (events_.empty()) return false;
    }
    event = events_[next_++];
    return true;
  }

  [[nodiscard]] std::string const& name() const noexcept { return name_; }
  [[nodiscard]] TraceCompression compression() const noexcept { return compression_; }

  // As TraceReader says.
  [[nodiscard]] virtual TraceFormat format() const noexcept = 0;
  [[nodiscard]] virtual std::span<std::uint64_t const> thread_ids() const noexcept = 0;
  [[nodiscard]] virtual std::span<std::uint32_t const> devices() const noexcept = 0;
  /// `device` is one of devices().
  virtual void only_device(std::uint32_t device) = 0;
  [[nodiscard]] virtual std::string_view name_of(std::uint32_t id) const noexcept = 0;
  [[nodiscard]] virtual std::string stack_of(std::uint32_t site) const = 0;
  [[nodiscard]] virtual TorchSnapshot const* snapshot() const noexcept = 0;

protected:
  /// Few enough that a batch (64 KiB) stays in the second-level cache on its way to the caller.
  static constexpr std::size_t kBatchEvents = 1024;

  /// Appends to events(), which is empty, or calls stop(). Nothing appended and not stopped: the end, asked for again by every call.
  virtual void fill_batch() = 0;

  [[nodiscard]] std::vector<TraceEvent>& events() noexcept { return events_; }
  void stop(Error error) { error_ = std::move(error); }
  [[nodiscard]] bool stopped() const noexcept { return error_.has_value(); }

private:
  void refill() {
    events_.clear();
    if (!error_) fill_batch();
  }

  std::string name_;
  TraceCompression compression_;
  std::vector<TraceEvent> events_;
  std::size_t next_ = 0;  // the first of events_ that was not delivered
  std::optional<Error> error_;
};

/// RMM's CSV: reads the header. Errors: those of TraceReader::open.
[[nodiscard]] Result<std::unique_ptr<RecordReader>> make_csv_reader(std::string name, TraceCompression compression,
                                                                    std::unique_ptr<ByteSource> bytes);
/// A pickle of protocol 2 to 5. Errors: those of TraceReader::open.
[[nodiscard]] Result<std::unique_ptr<RecordReader>> make_snapshot_reader(std::string name, OpenedSource source);

/// "0, 2, 3", for messages.
[[nodiscard]] std::string list_of(std::span<std::uint32_t const> devices);

/// What files of all formats are, at the end of a message about one that is none of them.
inline constexpr std::string_view kKnownFormats =
    "expected RMM's CSV log (first line Thread,Time,Action,Pointer,Size,Stream) or a memory snapshot of PyTorch (a pickle of "
    "protocol "
    "2 to 5), plain, .xz or .gz";

}  // namespace headroom::trace
