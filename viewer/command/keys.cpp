#include "keys.hpp"

#include <GLFW/glfw3.h>

namespace headroom::viewer {
namespace {

std::optional<Command> with_control(int key, bool is_typing) noexcept {
  switch (key) {
    case GLFW_KEY_F: return Command::filter;
    case GLFW_KEY_C: return is_typing ? std::nullopt : std::optional{Command::copy};
    case GLFW_KEY_E: return Command::export_selection;
    case GLFW_KEY_O: return Command::open;
    case GLFW_KEY_EQUAL:
    case GLFW_KEY_KP_ADD: return Command::larger;
    case GLFW_KEY_MINUS:
    case GLFW_KEY_KP_SUBTRACT: return Command::smaller;
    case GLFW_KEY_0:
    case GLFW_KEY_KP_0: return Command::usual_size;
    case GLFW_KEY_Q: return Command::quit;
    default: return std::nullopt;
  }
}

std::optional<Command> plain(int key, bool has_shift) noexcept {
  switch (key) {
    case GLFW_KEY_SPACE: return Command::pause;
    case GLFW_KEY_L: return Command::live;
    case GLFW_KEY_HOME: return Command::fit_all;
    case GLFW_KEY_F: return Command::fit_selection;
    case GLFW_KEY_W: return Command::zoom_in;
    case GLFW_KEY_S: return Command::zoom_out;
    case GLFW_KEY_A: return Command::pan_left;
    case GLFW_KEY_D: return Command::pan_right;
    case GLFW_KEY_UP: return Command::previous_event;
    case GLFW_KEY_DOWN: return Command::next_event;
    case GLFW_KEY_N: return has_shift ? Command::previous_failure : Command::next_failure;
    case GLFW_KEY_P: return Command::peak;
    case GLFW_KEY_Q: return Command::quit;
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<Command> command_of(int key, int modifiers, bool is_typing) noexcept {
  if (key == GLFW_KEY_ESCAPE) return Command::clear;
  if (key == GLFW_KEY_F1) return Command::help;
  if ((modifiers & (GLFW_MOD_ALT | GLFW_MOD_SUPER)) != 0) return std::nullopt;
  if ((modifiers & GLFW_MOD_CONTROL) != 0) return with_control(key, is_typing);
  return is_typing ? std::nullopt : plain(key, (modifiers & GLFW_MOD_SHIFT) != 0);
}

std::optional<Command> command_of_letter(std::uint32_t letter, bool is_typing) noexcept {
  return letter == '/' && !is_typing ? std::optional{Command::filter} : std::nullopt;
}

}  // namespace headroom::viewer
