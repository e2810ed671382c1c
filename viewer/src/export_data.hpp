// headroom: what is selected, or everything, into a file. No ImGui.
//
// A file is there when it is whole, and replaces none (new_file.hpp). Of rows no more text is in memory than a piece of a file.
// Thread safety: calls are independent. Cost: a row takes about a microsecond, an event of a trace as well.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <headroom/convert.hpp>
#include <headroom/error.hpp>
#include <headroom/follow.hpp>

#include "state.hpp"

namespace headroom::viewer {

enum class ExportWhat : std::uint8_t { events, live };
enum class ExportFormat : std::uint8_t { csv, json };

/// More rows than that are left out, the oldest first; the result says how many there were.
inline constexpr std::size_t kMostExported = 1'000'000;

struct Exported {
  std::uint64_t rows = 0;      ///< written
  std::uint64_t matching = 0;  ///< of so many
};

/// Rows on their way into a file, some at a time, so that a window answers meanwhile. Rows are those of the moment it was begun.
/// Ownership: it looks into the model, which must outlive it; gone before it is done, it leaves no file.
class RowExport {
public:
  /// Events of the selected range (else all) that the filter shows; or what is live at the moment that is looked at. Errors: io.
  [[nodiscard]] static Result<RowExport> begin(ViewState const& state, ExportWhat what, ExportFormat format,
                                               std::string const& path);
  RowExport(RowExport&&) noexcept;
  RowExport& operator=(RowExport&&) = delete;
  ~RowExport();

  /// Writes so many rows more at most. True once all are written and the file has its name. Errors: io.
  [[nodiscard]] Result<bool> write(std::size_t most);
  /// So far.
  [[nodiscard]] Exported const& exported() const noexcept { return exported_; }
  /// How many there are to write.
  [[nodiscard]] std::size_t count() const noexcept;
  /// The longest text that was in memory at once, in bytes: for tests of what is bounded.
  [[nodiscard]] std::size_t longest_piece() const noexcept { return longest_piece_; }

private:
  struct Rows;
  RowExport(follow::Model const& model, std::unique_ptr<Rows> rows);

  follow::Model const* model_;
  std::unique_ptr<Rows> rows_;
  Exported exported_;
  std::size_t longest_piece_ = 0;
};

/// What the model reads once more, as `state` opens it. Errors: io, parse, unsupported.
[[nodiscard]] Result<ReadAgain> read_again(ViewState const& state);

/// All of it, as a Chrome trace. Errors: io; those of the source.
[[nodiscard]] Result<ConvertReport> export_trace(ReadAgain again, std::string const& path, std::atomic<std::uint64_t>& progress);

}  // namespace headroom::viewer
