// Real files, really truncated while they are mapped.
#include "truncation_guard.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace headroom::exporter {
namespace {

constexpr std::size_t kPages = 4;

/// A file of four pages of ones, mapped.
class MappedFile {
public:
  MappedFile() : page_{static_cast<std::size_t>(sysconf(_SC_PAGESIZE))} {
    std::string path = std::filesystem::temp_directory_path() / "headroom-truncation-XXXXXX";
    fd_ = ::mkstemp(path.data());
    ::unlink(path.c_str());
    const std::vector<char> ones(size(), 1);
    EXPECT_EQ(::write(fd_, ones.data(), ones.size()), static_cast<ssize_t>(ones.size()));
    void* const mapped = ::mmap(nullptr, size(), PROT_READ, MAP_SHARED, fd_, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    first_ = static_cast<std::byte const*>(mapped);
  }
  MappedFile(MappedFile const&) = delete;
  MappedFile& operator=(MappedFile const&) = delete;
  ~MappedFile() {
    ::munmap(const_cast<std::byte*>(first_), size());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    ::close(fd_);
  }
  void truncate_to(std::size_t pages) const { ASSERT_EQ(::ftruncate(fd_, static_cast<off_t>(pages * page_)), 0); }
  [[nodiscard]] std::size_t size() const { return kPages * page_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {first_, size()}; }
  [[nodiscard]] int at(std::size_t page, std::size_t offset = 0) const {
    return std::to_integer<int>(static_cast<std::byte const volatile*>(first_)[page * page_ + offset]);
  }
  [[nodiscard]] std::size_t page() const { return page_; }

private:
  std::size_t page_;
  int fd_ = -1;
  std::byte const* first_ = nullptr;
};

TEST(TruncationGuard, gives_zeros_for_pages_that_are_gone_and_says_so) {
  ASSERT_TRUE(install_truncation_guard());
  const MappedFile file;
  const auto guard = guard_mapping(file.bytes());
  ASSERT_NE(guard, nullptr);
  EXPECT_EQ(file.at(3), 1);
  EXPECT_FALSE(is_damaged(file.bytes().data()));
  file.truncate_to(1);
  EXPECT_EQ(file.at(0, file.page() - 1), 1);
  EXPECT_FALSE(is_damaged(file.bytes().data())) << "what is there was read, and nothing else";
  EXPECT_EQ(file.at(1), 0);
  EXPECT_EQ(file.at(3, file.page() - 1), 0);
  EXPECT_TRUE(is_damaged(file.bytes().data()));
}

TEST(TruncationGuard, is_of_use_to_many_threads_at_once) {
  ASSERT_TRUE(install_truncation_guard());
  const MappedFile file;
  const auto guard = guard_mapping(file.bytes());
  file.truncate_to(0);
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&file] {
      for (std::size_t page = 0; page < kPages; ++page) EXPECT_EQ(file.at(page), 0);
    });
  }
  for (auto& reader : readers) reader.join();
  EXPECT_TRUE(is_damaged(file.bytes().data()));
}

TEST(TruncationGuard, knows_one_mapping_from_another) {
  ASSERT_TRUE(install_truncation_guard());
  const MappedFile one;
  const MappedFile two;
  const auto guard_one = guard_mapping(one.bytes());
  auto guard_two = guard_mapping(two.bytes());
  two.truncate_to(0);
  EXPECT_EQ(two.at(0), 0);
  EXPECT_FALSE(is_damaged(one.bytes().data()));
  EXPECT_TRUE(is_damaged(two.bytes().data()));
  guard_two.reset();
  EXPECT_FALSE(is_damaged(two.bytes().data())) << "no longer registered";
}

TEST(TruncationGuard, uses_places_again) {
  ASSERT_TRUE(install_truncation_guard());
  const MappedFile file;
  for (std::size_t i = 0; i < kGuardedMappings + 1; ++i) ASSERT_NE(guard_mapping(file.bytes()), nullptr);
}

// In a child, since what is tested ends it. Not with sanitizers, which have handlers of their own.
TEST(TruncationGuard, leaves_a_mapping_that_is_not_registered_to_its_fate) {
  ASSERT_TRUE(install_truncation_guard());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        install_truncation_guard();
        (void)std::signal(SIGABRT, SIG_DFL);
        const MappedFile file;
        file.truncate_to(0);
        static_cast<void>(file.at(0));
        std::_Exit(0);
      },
      [](int status) { return WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0); }, "");
}

}  // namespace
}  // namespace headroom::exporter
