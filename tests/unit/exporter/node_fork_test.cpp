// A node exporter around fork() and exit(): the parent serves on, and a child touches nothing of it.
#include <headroom/node_exporter.hpp>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "exit_in_child.hpp"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using test::exit_status_of;

class NodeFork : public testing::Test {
protected:
  NodeFork() {
    std::string pattern = fs::temp_directory_path() / "headroom-node-fork-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~NodeFork() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  [[nodiscard]] NodeExporter start() const {
    NodeExporterOptions options;
    options.listen = "127.0.0.1:0";
    options.folders = {folder_};
    options.post_mortems = false;
    options.log = [](std::string const&) {};
    return std::move(NodeExporter::start(std::move(options)).value());
  }
  std::string folder_;
};

TEST_F(NodeFork, a_child_may_stop_and_destroy_it_and_the_parents_goes_on) {
  auto exporter = std::make_unique<NodeExporter>(start());
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(exit_status_of([&] { exporter->stop(); }), test::kOrdinaryExit);
    EXPECT_EQ(exit_status_of([&] { exporter.reset(); }), test::kOrdinaryExit);
  }
  EXPECT_NE(exporter->port(), 0);
  exporter->stop();
}

TEST_F(NodeFork, exit_ends_its_threads_in_any_order) {
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
  GTEST_SKIP() << "ThreadSanitizer of g++ ends a forked child that starts a thread";
#endif
  EXPECT_EQ(exit_status_of([&] { static NodeExporter const held = start(); }), test::kOrdinaryExit);
  EXPECT_EQ(exit_status_of([&] {
              static NodeExporter* never_destroyed = nullptr;
              never_destroyed = std::make_unique<NodeExporter>(start()).release();
              EXPECT_NE(never_destroyed->port(), 0);
            }),
            test::kOrdinaryExit);
  EXPECT_EQ(exit_status_of([&] {
              auto stopped = start();
              stopped.stop();
              stopped.stop();
            }),
            test::kOrdinaryExit);
}

TEST_F(NodeFork, one_that_was_moved_from_says_so) {
  auto first = start();
  auto second = std::move(first);
  EXPECT_FALSE(first.reload().has_value());  // NOLINT(bugprone-use-after-move): that is what is tried
  EXPECT_TRUE(second.reload().has_value());
}

}  // namespace
}  // namespace headroom
