// What goes into files: rows, traces, and that no file is replaced.
#include "export_data.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "new_file.hpp"
#include "null_frames.hpp"
#include "scripted_source.hpp"

namespace headroom::viewer {

std::unique_ptr<Panel> make_export_panel();

namespace {

using testing::HasSubstr;

/// All rows in one piece of work.
Result<Exported> export_rows(ViewState const& state, ExportWhat what, ExportFormat format, std::string const& path) {
  auto begun = RowExport::begin(state, what, format, path);
  if (!begun) return tl::unexpected{std::move(begun.error())};
  if (auto done = begun->write(begun->count()); !done) return tl::unexpected{std::move(done.error())};
  return begun->exported();
}

class ExportTest : public testing::Test {
protected:
  void SetUp() override {
    auto name = (std::filesystem::temp_directory_path() / "headroom-export-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(std::string const& name) const { return (folder_ / name).string(); }
  [[nodiscard]] static std::string read(std::string const& path) {
    std::ostringstream text;
    text << std::ifstream{path, std::ios::binary}.rdbuf();
    return text.str();
  }
  std::filesystem::path folder_;
};

TEST_F(ExportTest, of_events_takes_the_selected_range_as_it_is_filtered) {
  auto const script = follow::named_script();
  script->allocate(100, 0x1000, 300, 5);
  script->allocate(200, 0x2000, 200, 6);
  script->free(300, 0x2000, 200, 6);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  ViewState state;
  state.show(&model);
  state.selected = TickRange{.begin = 150, .end = 301};
  state.filter.text = "kind:free";
  auto const done = export_rows(state, ExportWhat::events, ExportFormat::csv, path("events.csv"));
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->rows, 1U);
  EXPECT_EQ(read(path("events.csv")),
            "time_ns,event,bytes,used_after_bytes,tag,thread,duration_ns,manager,address,what\r\n"
            "200,free,200,300,cache,7,0,ledger 0,0x2000,\r\n");
  state.cursor = 250;
  ASSERT_TRUE(export_rows(state, ExportWhat::live, ExportFormat::json, path("live.json")).has_value());
  auto const json = nlohmann::json::parse(read(path("live.json")));
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["tag"], "weights");
  EXPECT_EQ(json[0]["age_ns"], 150);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{folder_}, {}), 2) << "nothing unfinished is left";
}

TEST_F(ExportTest, of_many_rows_is_written_in_pieces) {
  constexpr std::uint64_t kRows = 30'000;
  auto const script = follow::named_script();
  for (std::uint64_t i = 0; i < kRows; ++i) script->allocate(100 + i, 0x1000 * (i + 1), 300, 5, 20);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  ViewState state;
  state.show(&model);
  for (auto const format : {ExportFormat::csv, ExportFormat::json}) {
    auto const name = path(format == ExportFormat::csv ? "rows.csv" : "rows.json");
    auto begun = RowExport::begin(state, ExportWhat::events, format, name);
    ASSERT_TRUE(begun.has_value());
    EXPECT_EQ(begun->count(), kRows);
    for (std::uint64_t parts = 1; parts <= 4; ++parts) {
      auto const done = begun->write(8'000);
      ASSERT_TRUE(done.has_value());
      EXPECT_EQ(*done, parts == 4);
      EXPECT_EQ(begun->exported().rows, std::min<std::uint64_t>(parts * 8'000, kRows));
      EXPECT_EQ(std::filesystem::exists(name), *done) << "whole, or not there";
    }
    EXPECT_GT(std::filesystem::file_size(name), std::uint64_t{1} << 20U);
    EXPECT_LT(begun->longest_piece(), std::size_t{300} << 10U);
  }
  auto const json = nlohmann::json::parse(read(path("rows.json")));
  ASSERT_EQ(json.size(), kRows);
  EXPECT_EQ(json[kRows - 1]["time_ns"], kRows - 1);
  auto const csv = read(path("rows.csv"));
  EXPECT_EQ(std::ranges::count(csv, '\n'), static_cast<std::ptrdiff_t>(kRows + 1));
}

TEST_F(ExportTest, that_is_given_up_leaves_nothing) {
  auto const script = follow::named_script();
  script->allocate(100, 0x1000, 300, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  ViewState state;
  state.show(&model);
  {
    auto begun = RowExport::begin(state, ExportWhat::events, ExportFormat::csv, path("rows.csv"));
    ASSERT_TRUE(begun.has_value());
    EXPECT_FALSE(begun->write(0).value());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(ExportTest, where_nothing_can_be_written_says_so) {
  auto model = follow::model_of(follow::named_script());
  ASSERT_TRUE(model.catch_up());
  ViewState state;
  state.show(&model);
  auto const done = export_rows(state, ExportWhat::live, ExportFormat::csv, path("no/such/folder/x.csv"));
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().kind, ErrorKind::io);
  EXPECT_THAT(done.error().to_string(), HasSubstr("x.csv"));
}

TEST_F(ExportTest, of_everything_is_a_trace_that_parses) {
  std::atomic<std::uint64_t> progress{0};
  auto model = follow::Model::open_history(HEADROOM_TEST_DATA "/oom_batch.csv.xz").value();
  ViewState state;
  state.show(&model);
  auto const done = export_trace(read_again(state).value(), path("trace.json"), progress);
  ASSERT_TRUE(done.has_value()) << done.error().to_string();
  EXPECT_GT(done->events, 0U);
  EXPECT_GT(progress.load(), 0U);
  auto const json = nlohmann::json::parse(read(path("trace.json")));
  EXPECT_FALSE(json.empty());
}

TEST_F(ExportTest, of_a_file_that_changed_under_the_reader_leaves_nothing) {
  std::atomic<std::uint64_t> progress{0};
  auto again = ReadAgain{.records = follow::open_history_source(HEADROOM_TEST_DATA "/oom_batch.csv.xz").value(),
                         .was_whole = [] { return Result<void>{fail(ErrorKind::io, Layer::request, "truncated")}; }};
  EXPECT_FALSE(export_trace(std::move(again), path("trace.json"), progress).has_value());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(ExportTest, replaces_no_file_and_finds_names_that_are_free) {
  auto model = follow::model_of(follow::named_script());
  ASSERT_TRUE(model.catch_up());
  ViewState state;
  state.show(&model);
  EXPECT_EQ(free_name(path("rows"), ".csv"), path("rows.csv"));
  std::ofstream{path("rows.csv")} << "precious";
  std::ofstream{path("rows.csv.part")} << "another's";
  auto const done = export_rows(state, ExportWhat::live, ExportFormat::csv, path("rows.csv"));
  ASSERT_FALSE(done.has_value());
  EXPECT_THAT(done.error().to_string(), HasSubstr("is there already"));
  EXPECT_EQ(read(path("rows.csv")), "precious");
  std::filesystem::create_symlink(path("nowhere"), path("rows-2.csv"));
  EXPECT_EQ(free_name(path("rows"), ".csv"), path("rows-3.csv"));
  EXPECT_FALSE(export_rows(state, ExportWhat::live, ExportFormat::csv, path("rows-2.csv")).has_value());
  EXPECT_TRUE(export_rows(state, ExportWhat::live, ExportFormat::csv, path("rows-3.csv")).has_value());
  EXPECT_EQ(read(path("rows.csv.part")), "another's");
  EXPECT_FALSE(std::filesystem::exists(path("nowhere")));
  // Somebody is faster.
  auto slow = NewFile::open(path("raced.csv"));
  ASSERT_TRUE(slow.has_value());
  std::ofstream{path("raced.csv")} << "theirs";
  EXPECT_TRUE(slow->write("mine").has_value());
  EXPECT_FALSE(slow->finish().has_value());
  EXPECT_EQ(read(path("raced.csv")), "theirs");
}

TEST_F(ExportTest, panel_says_what_it_will_write) {
  auto model = follow::model_of(follow::named_script());
  ASSERT_TRUE(model.catch_up());
  NullFrames frames{900, 600};
  ViewState state;
  state.show(&model);
  auto const panel = make_export_panel();
  EXPECT_THAT(frames.draw(state, *panel), HasSubstr("of all that is kept"));
  state.selected = TickRange{.begin = 0, .end = 1'500'000};
  EXPECT_THAT(frames.draw(state, *panel, 2), HasSubstr("of the selected 1.50 ms"));
}

}  // namespace
}  // namespace headroom::viewer
