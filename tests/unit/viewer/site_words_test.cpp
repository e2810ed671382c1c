// Places in a program: what of a function's signature a person needs.
#include "site_words.hpp"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

namespace headroom::viewer {
namespace {

TEST(SiteWords, of_a_function_its_class_and_name_are_shown) {
  EXPECT_EQ(site_in_words("trace/replay_player.hpp:87 void headroom::trace::Player::allocate(const headroom::trace::Step&,"),
            "trace/replay_player.hpp:87 Player::allocate");
  EXPECT_EQ(site_in_words("a.cpp:1 int main(int, char**)"), "a.cpp:1 main");
  EXPECT_EQ(site_in_words("a.cpp:1 main()"), "a.cpp:1 main");
  EXPECT_EQ(site_in_words("a.cpp:1 const std::vector<float, std::allocator<float> >& nn::Layer<int, 3>::weights() const"),
            "a.cpp:1 Layer<int, 3>::weights");
  EXPECT_EQ(site_in_words("a.cpp:1 float* kernels::fill(float*)"), "a.cpp:1 kernels::fill");
  EXPECT_EQ(site_in_words("a.cpp:1 void nn::forward(T) [with T = float]"), "a.cpp:1 nn::forward");
}

TEST(SiteWords, names_that_are_no_plain_words_stay_whole) {
  EXPECT_EQ(site_in_words("a.cpp:1 bool nn::Key::operator()(int) const"), "a.cpp:1 Key::operator()");
  EXPECT_EQ(site_in_words("a.cpp:1 bool nn::operator<(const nn::Key&, const nn::Key&)"), "a.cpp:1 nn::operator<");
  EXPECT_EQ(site_in_words("a.cpp:1 nn::Key::operator bool() const"), "a.cpp:1 Key::operator bool");
  EXPECT_EQ(site_in_words("a.cpp:1 void nn::operators(int)"), "a.cpp:1 nn::operators");
  EXPECT_EQ(site_in_words("a.cpp:1 void (anonymous namespace)::step(int)"), "a.cpp:1 (anonymous namespace)::step");
  EXPECT_EQ(site_in_words("a.cpp:1 void {anonymous}::step(int)"), "a.cpp:1 {anonymous}::step");
}

TEST(SiteWords, a_name_that_the_flight_file_cut_says_so) {
  std::string const cut = "command/replay_guard.cpp:112 headroom::Result<void> headroom::command::ReplayGuard::Holder::fil";
  ASSERT_EQ(cut.size(), 95U);
  EXPECT_EQ(site_in_words(cut), "command/replay_guard.cpp:112 Holder::fil\u2026");
}

TEST(SiteWords, what_is_no_signature_stays_as_it_is) {
  for (auto const* const site : {"", "model.py:12 forward", "train.cpp:42", "a b c", "::", "( "}) {
    EXPECT_EQ(site_in_words(site), site);
  }
}

TEST(SiteWords, any_bytes_do_no_harm) {
  std::string const alphabet = "a :<>()&*operator(anonymous namespace)(lambda at ";
  std::uint32_t state = 1;
  for (std::uint32_t round = 0; round < 20'000; ++round) {
    std::string site;
    for (std::uint32_t left = round % 100; left > 0; --left) {
      state = state * 1'664'525U + 1'013'904'223U;
      site += alphabet[(state >> 8U) % alphabet.size()];
    }
    EXPECT_LE(site_in_words(site).size(), site.size() + 3);
  }
}

}  // namespace
}  // namespace headroom::viewer
