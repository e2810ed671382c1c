// The node exporter as a value.
#include <headroom/node_exporter.hpp>

#include <filesystem>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(NodeExporters, that_were_moved_from_answer_instead_of_ending_the_program) {
  std::string pattern = std::filesystem::temp_directory_path() / "headroom-node-XXXXXX";
  const std::string folder = ::mkdtemp(pattern.data());
  NodeExporterOptions options;
  options.listen = "127.0.0.1:0";
  options.folders = {folder};
  options.post_mortems = false;
  auto first = NodeExporter::start(std::move(options)).value();
  auto second = std::move(first);
  // NOLINTBEGIN(bugprone-use-after-move): what this is about
  const auto reloaded = first.reload();
  ASSERT_FALSE(reloaded.has_value());
  EXPECT_EQ(reloaded.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(reloaded.error().message, testing::HasSubstr("moved from"));
  EXPECT_EQ(first.port(), 0);
  EXPECT_EQ(first.url(), "");
  first.stop();
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_TRUE(second.reload().has_value());
  EXPECT_NE(second.port(), 0);
  second.stop();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace headroom
