// headroom: an answer that is too long to be kept as a string.
//
// Whoever makes it writes into a descriptor without a name (memfd_create), which costs no disk and ends with it; the client gets it in
// pieces, at its own pace.
//
// Thread safety: one thread at a time. Cost: the bytes, in memory, until the client has them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "listener.hpp"

namespace headroom::exporter {

class Document {
public:
  /// Errors: std::system_error where the system has no descriptor.
  Document();
  /// Keeps `place` until it ends: whoever counts documents sees by it that one is gone.
  explicit Document(std::shared_ptr<void> place) : Document() { place_ = std::move(place); }
  Document(Document const&) = delete;
  Document& operator=(Document const&) = delete;

  /// For whoever writes it.
  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
  [[nodiscard]] std::uint64_t size() const;
  /// How many bytes from `offset` on were read into `target`; 0 at the end.
  [[nodiscard]] std::size_t read(std::uint64_t offset, std::span<char> target) const;

private:
  std::shared_ptr<void> place_;  // let go of after the file
  FileDescriptor file_;
};

}  // namespace headroom::exporter
