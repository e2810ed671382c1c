// Issue 2 item 3 and case S10: a size is understood whole or refused, never guessed.
#include <cstdint>
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/byte_size.hpp>

namespace headroom {
namespace {

using testing::HasSubstr;

struct GoodSize {
  std::string text;
  std::uint64_t bytes;
  friend void PrintTo(GoodSize const& size, std::ostream* out) { *out << testing::PrintToString(size.text); }
};

class GoodByteSize : public testing::TestWithParam<GoodSize> {};

TEST_P(GoodByteSize, is_read_exactly) {
  auto const bytes = parse_byte_size(GetParam().text);
  ASSERT_TRUE(bytes.has_value()) << bytes.error().to_string();
  EXPECT_EQ(*bytes, GetParam().bytes);
}

TEST_P(GoodByteSize, is_the_same_budget) {
  EXPECT_EQ(parse_budget(GetParam().text), (BudgetText{.unlimited = false, .bytes = GetParam().bytes}));
}

INSTANTIATE_TEST_SUITE_P(plain, GoodByteSize,
                         testing::Values(GoodSize{"0", 0}, GoodSize{"00", 0}, GoodSize{"1", 1}, GoodSize{"512", 512},
                                         GoodSize{"0512", 512}, GoodSize{"1.0", 1}, GoodSize{"0.0", 0},
                                         GoodSize{"17592186044415", 17'592'186'044'415},  // 2^44 - 1, the largest budget
                                         GoodSize{"17592186044416", 17'592'186'044'416},  // and one more
                                         GoodSize{"18446744073709551615", 18'446'744'073'709'551'615U},
                                         GoodSize{"00000000000000000000000000000000000000007", 7}));
INSTANTIATE_TEST_SUITE_P(decimal, GoodByteSize,
                         testing::Values(GoodSize{"1k", 1'000}, GoodSize{"1K", 1'000}, GoodSize{"3m", 3'000'000},
                                         GoodSize{"3M", 3'000'000}, GoodSize{"4G", 4'000'000'000}, GoodSize{"4g", 4'000'000'000},
                                         GoodSize{"2t", 2'000'000'000'000}, GoodSize{"2T", 2'000'000'000'000},
                                         GoodSize{"7kB", 7'000}, GoodSize{"7MB", 7'000'000}, GoodSize{"4GB", 4'000'000'000},
                                         GoodSize{"1TB", 1'000'000'000'000}, GoodSize{"4096M", 4'096'000'000},
                                         GoodSize{"08G", 8'000'000'000}, GoodSize{"18446744073G", 18'446'744'073'000'000'000U}));
INSTANTIATE_TEST_SUITE_P(binary, GoodByteSize,
                         testing::Values(GoodSize{"1Ki", 1'024}, GoodSize{"1Mi", 1'048'576}, GoodSize{"4Gi", 4'294'967'296},
                                         GoodSize{"1Ti", 1'099'511'627'776}, GoodSize{"1KiB", 1'024},
                                         GoodSize{"2000MiB", 2'097'152'000}, GoodSize{"4GiB", 4'294'967'296},
                                         GoodSize{"16TiB", 17'592'186'044'416},
                                         GoodSize{"16777215Ti", 18'446'742'974'197'923'840U}));
INSTANTIATE_TEST_SUITE_P(fractions, GoodByteSize,
                         testing::Values(GoodSize{"1.5G", 1'500'000'000}, GoodSize{"1.5Gi", 1'610'612'736},
                                         GoodSize{"0.5Ki", 512}, GoodSize{"7.50k", 7'500}, GoodSize{"0.000000001G", 1},
                                         GoodSize{"0.0009765625Ki", 1}, GoodSize{"1.500000000000000000000000G", 1'500'000'000},
                                         GoodSize{"1.000000000000000000Ti", 1'099'511'627'776}));
INSTANTIATE_TEST_SUITE_P(blanks_around, GoodByteSize,
                         testing::Values(GoodSize{" 4G ", 4'000'000'000}, GoodSize{"4G\n", 4'000'000'000},
                                         GoodSize{"\t4Gi\r\n", 4'294'967'296}, GoodSize{"\n0\n", 0}));

struct BadSize {
  std::string text;
  std::string expected;  // part of the message
  ErrorKind kind = ErrorKind::parse;
  friend void PrintTo(BadSize const& size, std::ostream* out) { *out << testing::PrintToString(size.text); }
};

class BadByteSize : public testing::TestWithParam<BadSize> {};

TEST_P(BadByteSize, is_refused_with_a_reason) {
  auto const bytes = parse_byte_size(GetParam().text);
  ASSERT_FALSE(bytes.has_value()) << "read as " << *bytes;
  EXPECT_EQ(bytes.error().kind, GetParam().kind);
  EXPECT_EQ(bytes.error().layer, Layer::request);
  EXPECT_THAT(bytes.error().message, HasSubstr(GetParam().expected));
  EXPECT_THAT(bytes.error().message, HasSubstr("size '"));
}

TEST_P(BadByteSize, is_no_budget_either) { EXPECT_FALSE(parse_budget(GetParam().text).has_value()); }

INSTANTIATE_TEST_SUITE_P(not_a_number, BadByteSize,
                         testing::Values(BadSize{"", "it is empty"}, BadSize{" \n", "it is empty"}, BadSize{"-1", "negative"},
                                         BadSize{"-4G", "negative"}, BadSize{"+1", "expected digits"},
                                         BadSize{"G", "expected digits"}, BadSize{".5G", "expected digits"},
                                         BadSize{"5.G", "digits after the point"}, BadSize{"abc", "expected digits"}));
INSTANTIATE_TEST_SUITE_P(unknown_unit, BadByteSize,
                         testing::Values(BadSize{"4X", "unknown unit 'X'"}, BadSize{"1e9", "unknown unit 'e9'"},
                                         BadSize{"4Gib", "unknown unit 'Gib'"}, BadSize{"64000MiBGiB", "unknown unit 'MiBGiB'"},
                                         BadSize{"4gi", "unknown unit 'gi'"}, BadSize{"4ki", "unknown unit 'ki'"},
                                         BadSize{"4gb", "unknown unit 'gb'"}, BadSize{"4KB", "unknown unit 'KB'"},
                                         BadSize{"4 G", "unknown unit ' G'"}, BadSize{"4B", "unknown unit 'B'"},
                                         BadSize{"1,5G", "unknown unit ',5G'"}, BadSize{"0x10", "unknown unit 'x10'"},
                                         BadSize{"1.5.5", "unknown unit '.5'"}, BadSize{"4G 4G", "unknown unit 'G 4G'"},
                                         BadSize{std::string{"4G\0", 3}, "unknown unit 'G\\x00'"}));
INSTANTIATE_TEST_SUITE_P(not_whole_bytes, BadByteSize,
                         testing::Values(BadSize{"1.5", "whole number of bytes"}, BadSize{"0.1Ki", "whole number of bytes"},
                                         BadSize{"0.0001k", "whole number of bytes"}, BadSize{"0.3Gi", "whole number of bytes"},
                                         BadSize{"1.0000000000000000001G", "at most 18 digits"}));
INSTANTIATE_TEST_SUITE_P(zero_with_a_unit, BadByteSize,
                         testing::Values(BadSize{"0m", "written 0, without a unit"}, BadSize{"0G", "written 0, without a unit"},
                                         BadSize{"0.0Gi", "written 0, without a unit"}));
INSTANTIATE_TEST_SUITE_P(too_large, BadByteSize,
                         testing::Values(BadSize{"99999999999G", "2^64 - 1", ErrorKind::overflow},
                                         BadSize{"18446744073709551616", "2^64 - 1", ErrorKind::overflow},
                                         BadSize{"16777216Ti", "2^64 - 1", ErrorKind::overflow},
                                         BadSize{"18446744073.709551616G", "2^64 - 1", ErrorKind::overflow},
                                         BadSize{"340282366920938463463374607431768211456", "2^64 - 1", ErrorKind::overflow},
                                         BadSize{"340282366920938463463374607431768211457Ti", "2^64 - 1", ErrorKind::overflow}));
INSTANTIATE_TEST_SUITE_P(percent_without_a_device, BadByteSize,
                         testing::Values(BadSize{"50%", "needs a device"}, BadSize{"0%", "needs a device"}));

TEST(Percentage, is_a_share_of_the_device_rounded_down) {
  EXPECT_EQ(parse_byte_size("50%", 46'068), 23'034U);
  EXPECT_EQ(parse_byte_size("100%", 18'446'744'073'709'551'615U), 18'446'744'073'709'551'615U);
  EXPECT_EQ(parse_byte_size(" 12.5% ", 1'000), 125U);
  EXPECT_EQ(parse_byte_size("33%", 101), 33U);              // 33.33
  EXPECT_EQ(parse_byte_size("99.999%", 100'001), 99'999U);  // 100,001 - 1.00001 = 99,999.99999
  EXPECT_EQ(parse_byte_size("1%", 1), 0U);
  EXPECT_EQ(parse_budget("50%", 10), (BudgetText{.unlimited = false, .bytes = 5}));
}

TEST(Percentage, refuses_what_is_no_share) {
  for (auto const* const text : {"0%", "0.0%", "101%", "100.1%", "-5%", "50%%", "50 %", "%"}) {
    EXPECT_FALSE(parse_byte_size(text, 1'000).has_value()) << text;
  }
  EXPECT_THAT(parse_byte_size("101%", 1'000).error().message, HasSubstr("at most 100%"));
  EXPECT_THAT(parse_byte_size("0%", 1'000).error().message, HasSubstr("written 0"));
}

TEST(Budget, only_the_word_means_none) {
  EXPECT_EQ(parse_budget("unlimited"), (BudgetText{.unlimited = true, .bytes = 0}));
  EXPECT_EQ(parse_budget(" unlimited\n"), (BudgetText{.unlimited = true, .bytes = 0}));
  for (auto const* const text : {"-1", "Unlimited", "unlimitedd", "none", "inf", "0m", ""}) {
    auto const budget = parse_budget(text);
    ASSERT_FALSE(budget.has_value()) << text;
    EXPECT_THAT(budget.error().message, HasSubstr("for no budget write unlimited"));
  }
}

TEST(Budget, the_word_is_no_size) { EXPECT_FALSE(parse_byte_size("unlimited").has_value()); }

TEST(Budget, zero_is_a_budget_of_nothing) { EXPECT_EQ(parse_budget("0"), (BudgetText{.unlimited = false, .bytes = 0})); }

TEST(ByteSizeMessage, does_not_let_the_value_break_the_terminal) {
  auto const message = parse_byte_size("4\x1b[31m" + std::string(500, 'x')).error().message;
  EXPECT_THAT(message, HasSubstr("'4\\x1b[31mxx"));
  EXPECT_LT(message.size(), 400U);
}

TEST(FormatBytes, uses_three_digits_of_binary_units) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1), "1 B");
  EXPECT_EQ(format_bytes(1'023), "1023 B");
  EXPECT_EQ(format_bytes(1'024), "1 KiB");
  EXPECT_EQ(format_bytes(1'536), "1.5 KiB");
  EXPECT_EQ(format_bytes(536'870'912), "512 MiB");
  EXPECT_EQ(format_bytes(8'375'186'227), "7.8 GiB");
  EXPECT_EQ(format_bytes(8'400'000'000), "7.82 GiB");   // 7.823…
  EXPECT_EQ(format_bytes(10'579'622'600), "9.85 GiB");  // 9.853…
  EXPECT_EQ(format_bytes(68'157'440), "65 MiB");
  EXPECT_EQ(format_bytes(17'592'186'044'415), "16 TiB");  // 16 TiB − 1
  EXPECT_EQ(format_bytes(1'048'575), "1 MiB");            // never "1024 KiB"
  EXPECT_EQ(format_bytes(10'485'759), "10 MiB");          // never "10.00 MiB"
  EXPECT_EQ(format_bytes(1'047'552), "1023 KiB");
  EXPECT_EQ(format_bytes(18'446'744'073'709'551'615U), "16 EiB");
}

TEST(FormatBytes, exact_form_adds_the_bytes_only_where_something_was_rounded) {
  EXPECT_EQ(format_bytes_exact(512), "512 B");
  EXPECT_EQ(format_bytes_exact(1'536), "1.5 KiB");
  EXPECT_EQ(format_bytes_exact(8'375'186'227), "7.8 GiB (8,375,186,227 B)");
  EXPECT_EQ(format_bytes_exact(1'048'575), "1 MiB (1,048,575 B)");
  EXPECT_EQ(format_bytes_exact(18'446'744'073'709'551'615U), "16 EiB (18,446,744,073,709,551,615 B)");
}

TEST(FormatCount, separates_thousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1'000), "1,000");
  EXPECT_EQ(format_count(1'234'567), "1,234,567");
  EXPECT_EQ(format_count(18'446'744'073'709'551'615U), "18,446,744,073,709,551,615");
}

}  // namespace
}  // namespace headroom
