#include "document.hpp"

#include <cerrno>
#include <system_error>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace headroom::exporter {
namespace {

[[noreturn]] void raise(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

Document::Document() : file_(memfd_create("headroom-document", MFD_CLOEXEC)) {
  if (file_.get() < 0) raise("memfd_create");
}

std::uint64_t Document::size() const {
  struct stat status{};
  if (fstat(file_.get(), &status) != 0) raise("fstat");
  return static_cast<std::uint64_t>(status.st_size);
}

std::size_t Document::read(std::uint64_t offset, std::span<char> target) const {
  for (;;) {
    const auto count = pread(file_.get(), target.data(), target.size(), static_cast<off_t>(offset));
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) raise("pread");
  }
}

}  // namespace headroom::exporter
