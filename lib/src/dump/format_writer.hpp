// One format that timelines are converted to: a visitor that writes.
//
// Each format is a file of its own with one function that makes its writer; convert.cpp plays a timeline to it and asks it to finish.
// A writer keeps the first error that it meets, says `stopped()` from then on, and finish() returns it. What it writes goes through a
// buffer of fixed size to the sink.
#pragma once

#include <cstdint>
#include <memory>

#include <headroom/convert.hpp>
#include <headroom/error.hpp>

#include "dump/byte_sink.hpp"
#include "dump/timeline.hpp"

namespace headroom::dump {

class FormatWriter : public TimelineVisitor {
public:
  /// After the play, or when it stopped: writes what is left. Errors: io, and those of the format.
  [[nodiscard]] virtual Result<void> finish() = 0;
  /// Of the format: events, lines or stacks.
  [[nodiscard]] virtual std::uint64_t written() const noexcept = 0;
};

/// The sink said no. `code` is an error number of errno.h.
[[nodiscard]] Error write_error(int code);

[[nodiscard]] std::unique_ptr<FormatWriter> make_chrome_writer(ByteSink& sink, ConvertOptions const& options);
[[nodiscard]] std::unique_ptr<FormatWriter> make_csv_writer(ByteSink& sink, ConvertOptions const& options);
[[nodiscard]] std::unique_ptr<FormatWriter> make_folded_writer(ByteSink& sink, ConvertOptions const& options);
[[nodiscard]] std::unique_ptr<FormatWriter> make_history_json_writer(ByteSink& sink, ConvertOptions const& options);
// make_torch_writer() stands in torch_writer.hpp, with what its tests need.

}  // namespace headroom::dump
