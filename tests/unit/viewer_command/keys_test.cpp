// Which key asks for what.
#include "keys.hpp"

#include <GLFW/glfw3.h>
#include <gtest/gtest.h>

namespace headroom::viewer {
namespace {

TEST(Keys, the_filter_is_asked_for_by_the_sign_wherever_it_is_on_the_keyboard) {
  EXPECT_EQ(command_of_letter('/', false), Command::filter);
  EXPECT_FALSE(command_of_letter('/', true).has_value()) << "the field gets it";
  EXPECT_FALSE(command_of_letter('7', false).has_value());
  // Where American keyboards have the sign, German ones have a minus.
  EXPECT_FALSE(command_of(GLFW_KEY_SLASH, 0, false).has_value());
  EXPECT_EQ(command_of(GLFW_KEY_F, GLFW_MOD_CONTROL, true), Command::filter);
}

TEST(Keys, a_text_field_keeps_letters_and_lets_go_of_the_rest) {
  EXPECT_EQ(command_of(GLFW_KEY_N, GLFW_MOD_SHIFT, false), Command::previous_failure);
  EXPECT_FALSE(command_of(GLFW_KEY_N, GLFW_MOD_SHIFT, true).has_value());
  EXPECT_EQ(command_of(GLFW_KEY_ESCAPE, 0, true), Command::clear);
}

}  // namespace
}  // namespace headroom::viewer
