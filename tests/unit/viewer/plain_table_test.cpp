// Rows for other programs: nothing in a name may break a line, a cell or a value.
#include "plain_table.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace headroom::viewer {
namespace {

PlainTable table_of() {
  return {.columns = {"tag", "bytes", "age_ns"},
          .rows = {{std::string{"a,\"b\"\nc\td"}, std::uint64_t{9'007'199'254'740'993}, std::monostate{}},
                   {std::string{"\xff"}, std::uint64_t{2}, 0.5}}};
}

TEST(PlainTable, for_a_clipboard_has_a_line_for_each_row) {
  EXPECT_EQ(as_tabs(table_of()), "tag\tbytes\tage_ns\na,\"b\" c d\t9007199254740993\t\n\xff\t2\t0.5\n");
}

TEST(PlainTable, as_csv_quotes_what_needs_it) {
  EXPECT_EQ(as_csv(table_of()), "tag,bytes,age_ns\r\n\"a,\"\"b\"\"\nc\td\",9007199254740993,\r\n\xff,2,0.5\r\n");
}

TEST(PlainTable, as_json_keeps_numbers_exact_and_what_is_unknown_null) {
  auto const json = nlohmann::json::parse(as_json(table_of()));
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["tag"], "a,\"b\"\nc\td");
  EXPECT_EQ(json[0]["bytes"].get<std::uint64_t>(), 9'007'199'254'740'993U);
  EXPECT_TRUE(json[0]["age_ns"].is_null());
  EXPECT_EQ(json[1]["tag"], "\xEF\xBF\xBD");
  EXPECT_EQ(json[1]["age_ns"], 0.5);
}

TEST(PlainTable, without_rows_is_valid_all_the_same) {
  EXPECT_EQ(as_json({.columns = {"a"}}), "[]\n");
  EXPECT_EQ(as_csv({.columns = {"a"}}), "a\r\n");
}

}  // namespace
}  // namespace headroom::viewer
