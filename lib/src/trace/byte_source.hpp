// headroom: where the bytes of a history come from.
//
// A ByteSource delivers a file's content, decompressed, in pieces. It knows nothing of lines.
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <headroom/error.hpp>
#include <headroom/trace.hpp>

namespace headroom::trace {

class ByteSource {
public:
  ByteSource() = default;
  ByteSource(ByteSource const&) = delete;
  ByteSource& operator=(ByteSource const&) = delete;
  virtual ~ByteSource() = default;

  /// Fills the front of `buffer` (never empty) and returns how many bytes; 0 = the end. Fewer than asked for is not the end.
  /// Errors: io (reading failed), parse (compressed data that are broken or cut short). Not to be called again after an error.
  [[nodiscard]] virtual Result<std::size_t> read(std::span<char> buffer) = 0;
};

/// A descriptor with whoever reads it; closed with the last of them, unless it is the caller's.
class OpenFile {
public:
  OpenFile(int descriptor, bool owned) noexcept : descriptor_{descriptor}, owned_{owned} {}
  OpenFile(OpenFile const&) = delete;
  OpenFile& operator=(OpenFile const&) = delete;
  ~OpenFile();

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// Where the history begins in a regular file, of which `taken` bytes were read already; absent of what cannot be read twice.
  [[nodiscard]] std::optional<std::uint64_t> begin(std::size_t taken) const noexcept;

private:
  int descriptor_;
  bool owned_;
};

struct OpenedSource {
  std::unique_ptr<ByteSource> bytes;
  TraceCompression compression = TraceCompression::none;
  std::shared_ptr<OpenFile const> file{};  ///< below `bytes`
  std::optional<std::uint64_t> begin{};    ///< where it begins in the file, if it can be read from there again
};

/// Opens a file (`-` = standard input), looks at its first bytes and puts the decompressor that they ask for on top.
/// `name` is what messages call the file. Errors: io, with the system's reason.
[[nodiscard]] Result<OpenedSource> open_byte_source(std::string const& path, std::string const& name);
/// The same for a descriptor that stays the caller's, and of which `first_bytes` were read already: they are delivered first. At most
/// TraceReader::kMaxFirstBytes. Errors: io, invalid_argument (more than that).
[[nodiscard]] Result<OpenedSource> resume_byte_source(int descriptor, std::string_view first_bytes, std::string const& name);

/// `file` from its byte `begin` on, decompressed, whatever was read of it before. The descriptor's own position is moved along, so that
/// whoever asks for it sees how far the reading is. `file` must be regular.
/// Errors: io (no memory for the decompressor).
[[nodiscard]] Result<std::unique_ptr<ByteSource>> source_from(std::shared_ptr<OpenFile const> file, std::uint64_t begin,
                                                              TraceCompression compression, std::string const& name);

// The decompressors; each owns the source below it. Errors of the constructors: io (no memory for the decompressor).
[[nodiscard]] Result<std::unique_ptr<ByteSource>> make_xz_source(std::unique_ptr<ByteSource> compressed, std::string name);
[[nodiscard]] Result<std::unique_ptr<ByteSource>> make_gzip_source(std::unique_ptr<ByteSource> compressed, std::string name);

/// Compressed bytes are read in pieces of this size.
inline constexpr std::size_t kCompressedBufferBytes = std::size_t{64} * 1024;

}  // namespace headroom::trace
