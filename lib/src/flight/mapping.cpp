#include "flight/mapping.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flight/open_file.hpp"

namespace headroom::flight {
namespace {

tl::unexpected<Error> io_error(std::string const& path, std::string_view what, int error) {
  return fail(ErrorKind::io, Layer::request, path + ": " + std::string{what} + ": " + std::system_category().message(error));
}

}  // namespace

MappedFlight::MappedFlight(Key, std::byte const* bytes, Layout const& layout, std::string name, Origin origin,
                           int descriptor) noexcept
    : bytes_{bytes}, layout_{layout}, name_{std::move(name)}, origin_{origin}, descriptor_{descriptor} {}

MappedFlight::~MappedFlight() {
  if (origin_ != Origin::file) return;
  ::munmap(const_cast<std::byte*>(bytes_), layout_.file_bytes);
  ::close(descriptor_);
}

Result<std::shared_ptr<MappedFlight const>> MappedFlight::open(std::string path) {
  // O_NONBLOCK: a named pipe in the folder must not hold us for ever. It changes nothing for regular files.
  Descriptor fd{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (fd.get() < 0) {
    auto const error = errno;
    if (error == ELOOP) {
      return fail(ErrorKind::io, Layer::request, path + ": is a symbolic link, which is never followed; name the file itself");
    }
    return io_error(path, "cannot open", error);
  }
  return open(fd.take(), std::move(path));
}

Result<std::shared_ptr<MappedFlight const>> MappedFlight::open(int descriptor, std::string path) {
  Descriptor fd{descriptor};
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return io_error(path, "cannot examine", errno);
  if (!S_ISREG(status.st_mode)) return fail(ErrorKind::io, Layer::request, path + ": is no regular file");
  auto const size = static_cast<std::uint64_t>(status.st_size);
  if (size < sizeof(FileHeader)) return too_short(size, path);

  std::array<std::byte, sizeof(FileHeader)> header{};
  if (!read_at(fd.get(), 0, header)) return errno == 0 ? too_short(size, path) : io_error(path, "cannot read", errno);
  auto const layout = check_layout(header, size, path);
  if (!layout) return tl::unexpected<Error>{layout.error()};

  auto* const mapped = ::mmap(nullptr, layout->file_bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return io_error(path, "cannot map", errno);
  return std::make_shared<MappedFlight const>(Key{}, static_cast<std::byte const*>(mapped), *layout, std::move(path),
                                              Origin::file, fd.take());
}

Result<std::shared_ptr<MappedFlight const>> MappedFlight::over(std::span<const std::byte> bytes, std::string name,
                                                               Origin origin) {
  if (bytes.size() < sizeof(FileHeader)) return too_short(bytes.size(), name);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(FileHeader) != 0) {
    return fail(ErrorKind::invalid_argument, Layer::request, name + ": the bytes of a flight file must be aligned to 64");
  }
  // Acquire: pairs with the release store of the magic, the last one of the header.
  auto const* const header = reinterpret_cast<FileHeader const*>(bytes.data());
  static_cast<void>(StdAtomics::load_acquire(header->magic));
  auto const layout = check_layout(bytes.first<sizeof(FileHeader)>(), bytes.size(), name);
  if (!layout) return tl::unexpected<Error>{layout.error()};
  return std::make_shared<MappedFlight const>(Key{}, bytes.data(), *layout, std::move(name), origin, -1);
}

std::uint32_t MappedFlight::lanes_with_books() const noexcept {
  // Relaxed: a count that was loaded with acquire came after its lane's taking, so that this load then sees the lane.
  auto const used = StdAtomics::load_relaxed(header().lanes_used);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(used, layout_[Region::lanes].count));
}

LaneRingReader MappedFlight::ring(std::uint32_t lane, Ring ring) const noexcept {
  auto const& books = lanes()[lane];
  auto const& words = ring == Ring::main ? books.header.main : books.header.journal;
  auto const& where = ring == Ring::main ? layout_.main : layout_.journal;
  auto const* const first = reinterpret_cast<std::byte const*>(&books) + where.offset;
  return {words.head, words.reserve, RecordSlots{reinterpret_cast<Record const*>(first)}, where.records};
}

}  // namespace headroom::flight
