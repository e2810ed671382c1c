// headroom: a FILE argument: opened once, and known by its content, never by its name.
//
// Whatever takes a FILE opens a Source and asks for its kind. `-` is standard input, and pipes are fine too: the first bytes are looked
// at and handed on. To add a kind of file: a word in SourceKind, its first bytes in kind(), and a function beside flight() and
// history(); then a case in records() and in check_command.cpp. Who asks what a program held, and when, needs no case: records() gives
// all kinds the same form.
//
// Ownership: a Source owns its descriptor and, where a file cannot be mapped, its bytes; what it opened must not outlive it.
// Thread safety: one thread at a time, but for bytes_read().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <headroom/error.hpp>
#include <headroom/flight_reader.hpp>
#include <headroom/follow_source.hpp>
#include <headroom/post_mortem_reader.hpp>
#include <headroom/trace.hpp>

#include "command/guarded_flight.hpp"

namespace headroom::command {

// What commands that take a history say of it.
inline constexpr char const* kTraceHelp =
    "A recorded history: RMM's CSV log, or a memory snapshot of PyTorch; plain, .xz or .gz; - is standard input";
inline constexpr char const* kTraceDeviceHelp = "Which device of the history, where it has several";

enum class SourceKind : std::uint8_t {
  flight,   ///< begins with HRFLGHT1
  dump,     ///< a post-mortem: an object of JSON
  history,  ///< anything else: reading it says what it should be
};

class Source {
public:
  /// Errors: io (cannot be opened or read; with the system's reason).
  [[nodiscard]] static Result<Source> open(std::string path);

  Source(Source&& other) noexcept;
  Source& operator=(Source&&) = delete;
  ~Source();

  [[nodiscard]] SourceKind kind() const noexcept;
  [[nodiscard]] std::string const& name() const noexcept { return name_; }  ///< the path, or "standard input"

  /// A regular file named by its path, which can be opened again; no pipe, and not standard input.
  [[nodiscard]] bool is_file() const noexcept { return is_regular_ && !is_stdin_; }

  /// Errors: as FlightView::open. Of what is no regular file the whole is read first; at most 1 GiB. A file is guarded against those
  /// who truncate it for as long as this lives.
  [[nodiscard]] Result<flight::FlightView> flight();
  /// Good unless the flight file was truncated meanwhile: asked before what was made of it gets its name. Errors: io.
  [[nodiscard]] Result<void> was_whole() const;
  /// Once: it reads the descriptor. Errors: as read_post_mortem.
  [[nodiscard]] Result<PostMortem> post_mortem();
  /// A post-mortem's own text, after it was read and found whole. Once; good as long as this. Errors: the same, and parse (truncated).
  [[nodiscard]] Result<std::string_view> post_mortem_text();
  /// Once: it reads the descriptor. Errors: as TraceReader::open; for another kind of file, which kind it is.
  [[nodiscard]] Result<TraceReader> history();
  /// Whatever it is, as what a model follows. Once. Errors: those of the three above.
  [[nodiscard]] Result<std::unique_ptr<follow::Source>> records();

  /// What records() said on stderr of what it opened, for those whose readers see no stderr; "" = nothing.
  [[nodiscard]] std::string const& warning() const noexcept { return warning_; }

  /// How far a regular file was read, for a progress bar; any thread.
  struct Position {
    std::uint64_t read = 0, size = 0;
  };
  [[nodiscard]] std::optional<Position> position() const noexcept;

private:
  Source(int descriptor, bool is_stdin, std::string path, std::string name) noexcept;
  [[nodiscard]] Result<void> read_first_bytes();
  [[nodiscard]] Result<void> read_rest(std::uint64_t most, std::string_view expected);
  [[nodiscard]] std::string_view first_bytes() const noexcept { return {first_bytes_.data(), first_count_}; }

  struct Bytes;
  int descriptor_;
  bool is_stdin_;
  bool is_regular_ = false;
  std::string path_, name_, warning_;
  std::array<char, 8> first_bytes_{};
  std::size_t first_count_ = 0;
  std::unique_ptr<Bytes> bytes_;
  std::optional<GuardedFlight> guarded_;
};

}  // namespace headroom::command
