// A call site's name in the directory, when the compiler's text is longer than a label and not all of it is ASCII.
#include <array>
#include <cstring>
#include <source_location>
#include <string>

#include <gtest/gtest.h>

#include <headroom/flight_check.hpp>

#include "base/utf8.hpp"
#include "flight/directory.hpp"
#include "flight/recorder.hpp"

// Characters of two bytes: a label of 95 bytes ends within one of them in one of the two.
std::source_location ääääääääääääääääääääääääääääääääääääääääääääääääää() { return std::source_location::current(); }
std::source_location aääääääääääääääääääääääääääääääääääääääääääääääääää() { return std::source_location::current(); }

namespace headroom::flight {
namespace {

// The label as it lies there, not as a view mends it.
std::string stored_label(std::uint32_t id) {
  std::array<std::uint64_t, kLabelBytes / 8> words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = recorder.directory[id].label[i].load(std::memory_order_acquire);
  std::array<char, kLabelBytes> label{};
  std::memcpy(label.data(), words.data(), label.size());
  EXPECT_EQ(label.back(), '\0');
  return label.data();
}

TEST(SiteLabel, ends_with_a_whole_character) {
  ASSERT_TRUE(start_recorder());
  std::size_t sizes = 0;
  for (auto const& site :
       {ääääääääääääääääääääääääääääääääääääääääääääääääää(), aääääääääääääääääääääääääääääääääääääääääääääääääää()}) {
    auto const id = intern_site(site);
    ASSERT_NE(id, 0U);
    auto const label = stored_label(id);
    EXPECT_EQ(label.substr(label.size() - 2), "ä") << label;
    EXPECT_EQ(valid_utf8(label), label);
    sizes += label.size();
  }
  EXPECT_EQ(sizes, 95U + 94U) << "as much of both as fits";
  EXPECT_EQ(check_flight(FlightView::of_this_process().value(), {}).found, 0U);
}

}  // namespace
}  // namespace headroom::flight
