// The list of processes, and what is said of a file that is opened.
#include <fstream>
#include <string>

#include <gmock/gmock.h>

#include "document.hpp"
#include "flight_builder.hpp"
#include "null_frames.hpp"
#include "post_mortems.hpp"
#include "process_list.hpp"

namespace headroom::viewer {
namespace {

using testing::HasSubstr;
using testing::Not;

class Files : public testing::Test {
protected:
  test::TemporaryFolder folder_;
};

TEST_F(Files, more_processes_than_are_listed_are_told) {
  for (int i = 1; i <= 4; ++i) {
    flight::FlightBuilder file;
    file.header().start_realtime_ns = static_cast<std::uint64_t>(i) * 1'000'000'000;
    auto const number = std::to_string(i);
    auto const name = "p" + number + '.' + number + ".000000000000000" + number + ".flight";
    file.save((folder_.path() / name).string());
  }
  NullFrames frames{1'280, 720};
  auto const text_of = [&](ProcessList list) {
    frames.frame(ThemeName::dark, [&](Ui& ui) { EXPECT_FALSE(list.draw(ui).has_value()); });
    return frames.text();
  };
  EXPECT_THAT(text_of(ProcessList{folder_.path().string(), 3}), HasSubstr("the 3 that started last; 1 older file can be opened"));
  EXPECT_THAT(text_of(ProcessList{folder_.path().string(), 4}), Not(HasSubstr("older file")));
}

TEST_F(Files, a_truncated_post_mortem_is_opened_with_a_warning) {
  flight::FlightBuilder file;
  file.open_ledger(0, 1, "main");
  auto const text = test::post_mortem_text(file.view());
  auto const write = [&](char const* name, std::size_t length) {
    auto path = (folder_.path() / name).string();
    std::ofstream{path, std::ios::binary} << text.substr(0, length);
    return path;
  };
  auto const whole = Document::open(write("whole.json", text.size()), 1U << 20U);
  ASSERT_TRUE(whole) << whole.error().to_string();
  EXPECT_EQ((*whole)->warning(), "");
  auto const end = text.rfind("\"end\"");
  ASSERT_NE(end, std::string::npos);
  auto const cut = Document::open(write("cut.json", end), 1U << 20U);
  ASSERT_TRUE(cut) << cut.error().to_string();
  EXPECT_THAT((*cut)->warning(), HasSubstr("cut.json: truncated: what is told is whole"));
}

}  // namespace
}  // namespace headroom::viewer
