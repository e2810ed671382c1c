// Files as `htpasswd -B` writes them, and headers as clients send them.
#include "password_file.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <crypt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace headroom::exporter {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string hash_of(std::string const& password, char const* setting = "$2y$04$abcdefghijklmnopqrstuu") {
  const auto data = std::make_unique<crypt_data>();
  char const* const made = crypt_r(password.c_str(), setting, data.get());
  return made == nullptr ? "" : made;
}

std::string base64(std::string_view text) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += 3) {
    unsigned bits = 0;
    for (std::size_t i = 0; i < 3; ++i) bits = bits << 8 | (at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) out += at + i > text.size() ? '=' : kLetters[(bits >> (18 - 6 * i)) & 63U];
  }
  return out;
}

bool lets_in(PasswordFile& users, std::string const& authorization) { return users.access_of(authorization) == Access::granted; }
bool keeps_out(PasswordFile& users, std::string const& authorization) { return users.access_of(authorization) == Access::denied; }

class PasswordFiles : public testing::Test {
protected:
  PasswordFiles() {
    std::string pattern = std::filesystem::temp_directory_path() / "headroom-users-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~PasswordFiles() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Result<std::shared_ptr<PasswordFile>> load(std::string const& text) {
    std::ofstream{path()} << text;
    return PasswordFile::load(path());
  }
  std::string error_of(std::string const& text) {
    const auto loaded = load(text);
    return loaded ? "no error" : loaded.error().message;
  }
  [[nodiscard]] std::string path() const { return folder_ + "/users"; }

  std::string folder_;
};

std::string basic(std::string const& words) { return "Basic " + base64(words); }

TEST_F(PasswordFiles, permit_who_is_in_them_with_the_right_password) {
  const auto users = load("# who may look\n\nada:" + hash_of("secret") + "\r\nbob:" + hash_of("with:colon") + "\n").value();
  for (int i = 0; i < 2; ++i) {  // the second time without a hash
    EXPECT_TRUE(lets_in(*users, basic("ada:secret")));
    EXPECT_TRUE(lets_in(*users, "bAsIc   " + base64("bob:with:colon") + " "));
  }
  for (const char* words : {"ada:Secret", "ada:", "ada:secret2", "bob:secret", "eve:secret", "ada", ":secret", ""}) {
    EXPECT_TRUE(keeps_out(*users, basic(words))) << words;
  }
  EXPECT_TRUE(keeps_out(*users, ""));
  EXPECT_TRUE(keeps_out(*users, "Basic"));
  EXPECT_TRUE(keeps_out(*users, "Bearer " + base64("ada:secret")));
  EXPECT_TRUE(keeps_out(*users, "Basic ada:secret"));
  EXPECT_TRUE(keeps_out(*users, "Basic !!!!"));
  EXPECT_TRUE(keeps_out(*users, basic(std::string{"ada:secret\0", 11})));
  EXPECT_TRUE(keeps_out(*users, basic("ada:" + std::string(73, 'x'))));
  EXPECT_TRUE(keeps_out(*users, basic(std::string(8'000, 'x'))));
}

TEST_F(PasswordFiles, passwords_of_72_bytes_are_the_longest) {
  const std::string longest(72, 'x');
  const auto users = load("ada:" + hash_of(longest) + "\n").value();
  EXPECT_TRUE(lets_in(*users, basic("ada:" + longest)));
  // Its first 72 bytes are right, and bcrypt looks at no more.
  EXPECT_TRUE(keeps_out(*users, basic("ada:" + longest + "y")));
}

/// Counts rounds in place of making them; a hash is its setting's first 29 characters, then the password, then dots.
struct CountedRounds {
  std::string operator()(std::string const& password, std::string const& setting) const {
    *rounds += std::uint64_t{1} << std::stoul(setting.substr(4, 2));
    return (setting.substr(0, 29) + password + std::string(60, '.')).substr(0, 60);
  }
  std::shared_ptr<std::uint64_t> rounds = std::make_shared<std::uint64_t>(0);
};

std::string plain_hash(std::string const& cost, std::string const& password) {
  return ("$2y$" + cost + "$abcdefghijklmnopqrstuu" + password + std::string(60, '.')).substr(0, 60);
}

TEST(PasswordChecks, take_as_many_rounds_for_whoever_is_named) {
  const CountedRounds crypt;
  PasswordFile users{
      {{"ada", plain_hash("04", "secret")}, {"bob", plain_hash("10", "other")}, {"cyd", plain_hash("07", "third")}}, crypt};
  // 2^10 of the dearest: 16 + 16 + 32 + 64 + … + 512 for ada.
  for (const char* words : {"ada:wrong", "bob:wrong", "cyd:wrong", "eve:wrong", "ada:secret", "bob:other", "cyd:third"}) {
    *crypt.rounds = 0;
    static_cast<void>(users.access_of(basic(words)));
    EXPECT_EQ(*crypt.rounds, 1'024U) << words;
  }
  *crypt.rounds = 0;
  EXPECT_TRUE(lets_in(users, basic("ada:secret")));
  EXPECT_EQ(*crypt.rounds, 0U) << "let in with the same words before";
  EXPECT_TRUE(keeps_out(users, basic("ada:other"))) << "bob's";
}

/// Does not come back before it is told to, once it is closed.
struct Gate {
  void pass() {
    std::unique_lock lock{mutex};
    ++inside;
    changed.notify_all();
    changed.wait(lock, [this] { return !is_closed; });
  }
  void set_closed(bool closed) {
    const std::lock_guard lock{mutex};
    is_closed = closed;
    changed.notify_all();
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool is_closed = false;
  int inside = 0;
};

TEST(PasswordChecks, wait_four_at_a_time_and_hold_up_nobody_who_was_let_in_before) {
  Gate gate;
  PasswordFile users{{{"ada", plain_hash("04", "secret")}}, [&gate](std::string const& password, std::string const& setting) {
                       gate.pass();
                       return plain_hash(setting.substr(4, 2), password);
                     }};
  EXPECT_TRUE(lets_in(users, basic("ada:secret")));
  gate.set_closed(true);
  constexpr int kOthers = 20;
  std::atomic<int> denied{0}, busy{0};
  std::vector<std::thread> others;
  for (int i = 0; i < kOthers; ++i) {
    others.emplace_back([&, i] {
      const auto access = users.access_of(basic("ada:wrong" + std::to_string(i)));
      ++(access == Access::busy ? busy : denied);
    });
  }
  // Four have a place, and none of them gets on.
  while (busy < kOthers - 4) std::this_thread::yield();
  EXPECT_TRUE(lets_in(users, basic("ada:secret")));
  EXPECT_EQ(users.access_of(basic("ada:wrong")), Access::busy);
  EXPECT_EQ(denied, 0);
  gate.set_closed(false);
  for (auto& other : others) other.join();
  EXPECT_EQ(busy, kOthers - 4);
  EXPECT_EQ(denied, 4);
  EXPECT_TRUE(keeps_out(users, basic("ada:wrong"))) << "the places are free again";
}

TEST_F(PasswordFiles, an_htpasswd_line_of_another_program_is_understood) {
  // printf with bcrypt's published test vector: the password is "U*U".
  const auto users = load("u:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n").value();
  EXPECT_TRUE(lets_in(*users, basic("u:U*U")));
  EXPECT_TRUE(keeps_out(*users, basic("u:U*V")));
}

TEST_F(PasswordFiles, errors_name_the_line_and_never_the_hash) {
  const auto good = "ada:" + hash_of("secret") + "\n";
  EXPECT_THAT(error_of(good + "bob\n"), HasSubstr("'" + path() + "': line 2 has no ':'; expected user:hash"));
  EXPECT_THAT(error_of(":" + hash_of("x")), HasSubstr("line 1 has no user"));
  EXPECT_THAT(error_of("#\n" + good + good), HasSubstr("line 3 names user 'ada' again"));
  EXPECT_THAT(error_of("bob:$apr1$abc$def"), HasSubstr("line 1 of user 'bob' is no bcrypt hash; expected one as `htpasswd -B`"));
  EXPECT_THAT(error_of("bob:plain-secret"), Not(HasSubstr("plain-secret")));
  EXPECT_THAT(error_of("bob:$2y$13$" + std::string(53, 'a')), HasSubstr("has a cost of 13; expected 4 to 12"));
  EXPECT_THAT(error_of("bob:$2y$0x$" + std::string(53, 'a')), HasSubstr("no bcrypt hash"));
  EXPECT_THAT(error_of("# nobody\n"), HasSubstr("has no user"));
}

TEST_F(PasswordFiles, a_file_that_is_empty_missing_or_too_large_is_said_to_be) {
  EXPECT_THAT(error_of(""), HasSubstr("'" + path() + "': is empty"));
  EXPECT_THAT(error_of(std::string((1U << 20) + 1, '#')), HasSubstr("larger than 1 MiB"));
  const auto missing = PasswordFile::load(folder_ + "/none");
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message, HasSubstr("none': No such file"));
  EXPECT_EQ(missing.error().kind, ErrorKind::io);
}

}  // namespace
}  // namespace headroom::exporter
