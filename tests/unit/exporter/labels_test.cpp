// Label values: valid, short, and otherwise as the program wrote them.
#include "labels.hpp"

#include <string>

#include <gtest/gtest.h>

namespace headroom::exporter {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

TEST(SafeLabelValue, leaves_good_text_alone) {
  for (std::string const text : {"", "kv-cache", "a\"b", "c\\d", "e\nf", "tab\there", "é", "\xE2\x82\xAC", "\xF0\x9F\x9A\x80"}) {
    EXPECT_EQ(safe_label_value(text), text);
  }
}

TEST(SafeLabelValue, replaces_each_invalid_byte) {
  EXPECT_EQ(safe_label_value("\xff\xfe"), std::string{kReplacement} + kReplacement);
  EXPECT_EQ(safe_label_value("a\xC3"), std::string{"a"} + kReplacement);              // cut off
  EXPECT_EQ(safe_label_value("\xC0\xAF"), std::string{kReplacement} + kReplacement);  // overlong
  EXPECT_EQ(safe_label_value("\xE0\x9F\xBF").substr(0, 3), kReplacement);             // overlong
  EXPECT_EQ(safe_label_value("\xED\xA0\x80").substr(0, 3), kReplacement);             // surrogate
  EXPECT_EQ(safe_label_value("\xF4\x90\x80\x80").substr(0, 3), kReplacement);         // above U+10FFFF
  EXPECT_EQ(safe_label_value("\xC3(x"), std::string{kReplacement} + "(x");            // the next character survives
}

TEST(SafeLabelValue, replaces_control_characters_that_end_lines) {
  EXPECT_EQ(safe_label_value(std::string_view{"a\0b", 3}), std::string{"a"} + kReplacement + "b");
  EXPECT_EQ(safe_label_value("a\rb\x1B\x7F"), std::string{"a"} + kReplacement + "b" + kReplacement + kReplacement);
}

TEST(SafeLabelValue, is_cut_at_128_bytes_and_between_characters) {
  EXPECT_EQ(safe_label_value(std::string(10'000, 'x')), std::string(128, 'x'));
  // 127 bytes and a character of two: it does not fit whole, so it is left out whole.
  EXPECT_EQ(safe_label_value(std::string(127, 'x') + "é"), std::string(127, 'x'));
  EXPECT_EQ(safe_label_value(std::string(126, 'x') + "é"), std::string(126, 'x') + "é");
  // 42 replacements of 3 bytes are 126; a 43rd would be 129.
  EXPECT_EQ(safe_label_value(std::string(500, '\xff')).size(), 126U);
}

}  // namespace
}  // namespace headroom::exporter
