#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <headroom/log_sink.hpp>

#include "base/quoted.hpp"
#include "flight/recorder.hpp"
#include "trace/csv_line.hpp"
#include "trace/csv_record.hpp"

namespace headroom {
namespace {

constexpr char kVariable[] = "HEADROOM_LOG_FILE";
constexpr std::size_t kBufferBytes = std::size_t{64} * 1024;

tl::unexpected<Error> io_error(std::string const& path, std::string_view what, int code) {
  return fail(ErrorKind::io, Layer::request,
              "the log " + in_quotes(path) + " cannot be " + std::string{what} + ": " + std::generic_category().message(code));
}

// A lock would be held over writes to a file. Nobody has to wait here: a sink has one caller, and a second one is told so.
class OnlyCaller {
public:
  explicit OnlyCaller(std::atomic<bool>& busy) noexcept
      : busy_(busy), entered_(!busy.exchange(true, std::memory_order_acquire)) {}
  ~OnlyCaller() {
    if (entered_) busy_.store(false, std::memory_order_release);
  }
  OnlyCaller(OnlyCaller const&) = delete;
  OnlyCaller& operator=(OnlyCaller const&) = delete;
  [[nodiscard]] bool entered() const noexcept { return entered_; }

private:
  std::atomic<bool>& busy_;
  bool entered_;
};

tl::unexpected<Error> second_caller(std::string const& path) {
  return fail(ErrorKind::invalid_argument, Layer::request,
              "the log " + in_quotes(path) + " is being written by another caller; expected one follower for each CsvSink");
}

}  // namespace

Result<std::shared_ptr<CsvSink>> CsvSink::create(std::string path) {
  if (path.empty()) {
    const char* const value = std::getenv(kVariable);
    if (value != nullptr) path = value;
  }
  if (path.empty()) {
    return fail(ErrorKind::invalid_argument, Layer::request,
                std::string{"a log needs a file: found no path and no "} + kVariable + ", expected one of them");
  }
  constexpr mode_t kMode = S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;  // less the umask
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
  if (descriptor < 0) return io_error(path, "opened", errno);
  auto sink = std::make_shared<CsvSink>(Key{}, std::move(path), descriptor);
  sink->buffer_.reserve(kBufferBytes);
  sink->buffer_.append(trace::kCsvHeader).push_back('\n');
  if (auto header = sink->flush(); !header) return tl::unexpected{std::move(header.error())};
  return sink;
}

CsvSink::CsvSink(Key, std::string path, int descriptor) noexcept : path_(std::move(path)), descriptor_(descriptor) {}

CsvSink::~CsvSink() {
  // What a forked child has in its buffer is the parent's to write.
  if (!flight::in_forked_child()) static_cast<void>(write_out());
  ::close(descriptor_);
}

Result<void> CsvSink::write(std::span<LogLine const> lines) {
  const OnlyCaller caller{is_busy_};
  if (!caller.entered()) return second_caller(path_);
  Result<void> outcome;
  for (auto const& line : lines) {
    if (line.action == LogLine::Action::free_failure) {
      failed_frees_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    // After the first refusal of the file no second try in the same call: each might take as long.
    if (buffer_.size() + trace::kCsvLineRoom > kBufferBytes && outcome) outcome = write_out();
    if (buffer_.size() + trace::kCsvLineRoom > kBufferBytes) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    char text[trace::kCsvLineRoom];
    buffer_.append(text, static_cast<std::size_t>(trace::CsvLineWriter{text}.write(line) - text));
    lines_.fetch_add(1, std::memory_order_relaxed);
  }
  if (outcome) outcome = write_out();
  return outcome;
}

Result<void> CsvSink::flush() {
  const OnlyCaller caller{is_busy_};
  if (!caller.entered()) return second_caller(path_);
  return write_out();
}

Result<void> CsvSink::write_out() {
  std::size_t written = 0;
  int code = 0;
  while (written < buffer_.size() && code == 0) {
    const ssize_t bytes = ::write(descriptor_, buffer_.data() + written, buffer_.size() - written);
    if (bytes > 0) {
      written += static_cast<std::size_t>(bytes);
    } else if (bytes == 0 || errno != EINTR) {
      code = bytes == 0 ? EIO : errno;
    }
  }
  // A line of which a part got out is finished before anything else is written.
  buffer_.erase(0, written);
  if (code != 0) return io_error(path_, "written", code);
  return {};
}

}  // namespace headroom
