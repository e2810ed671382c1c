// A test of the post-mortem that a failing program writes by itself: in a process of its own, since a program looks at its environment
// once, before its first manager. What such a process finds wrong it says on stderr, and exits with 1.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <utility>

#include <gtest/gtest.h>

#include <headroom/post_mortem.hpp>
#include <headroom/post_mortem_reader.hpp>

#include "post_mortems.hpp"

namespace headroom::test {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr char kFolder[] = "dumps";

inline bool good = true;  // of this process; a test process has one thread that checks

inline void check(bool holds, char const* what, int line) {
  if (holds) return;
  good = false;
  std::cerr << "line " << line << ": " << what << '\n';
}
#define CHECK(...) check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __LINE__)

class AutomaticDeathTest : public ::testing::Test {
protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

/// The body in a process whose post-mortems go to a folder of its own.
[[noreturn]] inline void in_own_process(std::function<void(TemporaryFolder const&)> const& body) {
  {
    const TemporaryFolder folder;
    setenv("HEADROOM_DIR", (folder.path() / "flights").c_str(), 1);
    setenv("HEADROOM_DUMP_DIR", (folder.path() / kFolder).c_str(), 1);
    unsetenv("HEADROOM_DUMP");
    std::filesystem::create_directory(folder.path() / "flights");
    std::filesystem::permissions(folder.path() / "flights", std::filesystem::perms::owner_all);
    body(folder);
  }
  std::cerr.flush();
  std::_Exit(good ? 0 : 1);
}

inline void expect_in_own_process(std::function<void(TemporaryFolder const&)> const& body) {
  EXPECT_EXIT(in_own_process(body), ::testing::ExitedWithCode(0), "");
}

[[nodiscard]] inline PostMortem only_dump(TemporaryFolder const& folder) {
  const auto names = folder.names(kFolder);
  CHECK(names.size() == 1);
  if (names.empty()) return {};
  const auto path = (folder.path() / kFolder / names[0]).string();
  CHECK(path == last_post_mortem());
  auto dump = load_post_mortem(path);
  CHECK(dump);
  return dump ? std::move(*dump) : PostMortem{};
}

}  // namespace headroom::test
