#include "command/terminal_screen.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace headroom::command {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";  // second screen, no cursor
constexpr std::string_view kLeave = "\x1b[0m\x1b[?25h\x1b[?1049l";

// Written before any handler can run, and not again while one can.
struct termios before{};

// All written by signal handlers and by the one thread that owns the screen, in any order of the two; relaxed: `before` is written
// while no handler is installed, and nothing else is read through them.
constinit std::atomic<bool> shown{false};       // the terminal is ours: whoever takes it back to false puts it back
constinit std::atomic<bool> end_asked{false};   // a signal came that ends the program
constinit std::atomic<bool> stop_asked{false};  // Ctrl-Z
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers use them");

/// Only async-signal-safe calls.
void put(std::string_view text) noexcept {
  while (!text.empty()) {
    auto const written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void leave() noexcept {
  if (!shown.exchange(false, std::memory_order_relaxed)) return;
  put(kLeave);
  static_cast<void>(::tcsetattr(STDIN_FILENO, TCSANOW, &before));
}

[[nodiscard]] bool enter() noexcept {
  auto ours = before;
  ours.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  ours.c_cc[VMIN] = 0;
  ours.c_cc[VTIME] = 0;
  shown.store(true, std::memory_order_relaxed);  // first: a signal in between puts back what is not changed yet
  if (::tcsetattr(STDIN_FILENO, TCSANOW, &ours) != 0) {
    shown.store(false, std::memory_order_relaxed);
    return false;
  }
  put(kEnter);
  return true;
}

extern "C" void on_end(int number) {
  if (!end_asked.exchange(true, std::memory_order_relaxed)) return;
  leave();  // the second one: whoever asks twice means it
  ::_exit(128 + number);
}

extern "C" void on_crash(int number) {
  leave();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

extern "C" void on_stop(int /*number*/) { stop_asked.store(true, std::memory_order_relaxed); }
extern "C" void on_resize(int /*number*/) {}  // only ends the wait

void handle(int number, void (*handler)(int)) noexcept {
  struct sigaction action{};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  ::sigaction(number, &action, nullptr);
}

void handle_signals() noexcept {
  for (auto const number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) handle(number, on_end);
  for (auto const number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) handle(number, on_crash);
  handle(SIGTSTP, on_stop);
  handle(SIGWINCH, on_resize);
  // A terminal that is gone is noticed by what the calls return.
  ::signal(SIGPIPE, SIG_IGN);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

Result<TerminalScreen> TerminalScreen::open() {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) {
    return fail(ErrorKind::io, Layer::request, "stdin and stdout must be a terminal; --once prints one frame anywhere");
  }
  if (::tcgetattr(STDIN_FILENO, &before) != 0) {
    return fail(ErrorKind::io, Layer::request, std::string{"the terminal does not tell its settings: "} + std::strerror(errno));
  }
  handle_signals();
  std::atexit([] { leave(); });
  if (!enter()) {
    return fail(ErrorKind::io, Layer::request, std::string{"the terminal does not change its settings: "} + std::strerror(errno));
  }
  return TerminalScreen{};
}

TerminalScreen::TerminalScreen(TerminalScreen&& other) noexcept : owns_{std::exchange(other.owns_, false)} {}

TerminalScreen::~TerminalScreen() {
  if (owns_) leave();
}

TerminalScreen::Size TerminalScreen::size() noexcept {
  struct winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) return {};
  return {.columns = window.ws_col, .rows = window.ws_row};
}

bool TerminalScreen::must_end() noexcept { return end_asked.load(std::memory_order_relaxed); }

void TerminalScreen::show(std::string const& frame) {
  auto const [columns, rows] = size();
  std::string text = "\x1b[H";
  std::size_t row = 0;
  for (std::size_t begin = 0; begin < frame.size() && row < rows; ++row) {
    auto const end = std::min(frame.find('\n', begin), frame.size());
    if (row != 0) text += '\n';
    text += clipped(frame.substr(begin, end - begin), columns) + "\x1b[K";
    begin = end + 1;
  }
  put(text + "\x1b[J");
}

std::optional<char> TerminalScreen::wait_for_key(std::chrono::milliseconds time) {
  if (stop_asked.exchange(false, std::memory_order_relaxed)) {
    leave();
    ::raise(SIGSTOP);  // here the shell has the terminal, until SIGCONT
    static_cast<void>(enter());
  }
  struct pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (::poll(&input, 1, static_cast<int>(time.count())) <= 0) return std::nullopt;
  char key = 0;
  auto const got = ::read(STDIN_FILENO, &key, 1);
  if (got == 1) return key;
  // Readable and nothing to read: the terminal is gone. Without this the loop would never wait again.
  if (got == 0 || errno != EINTR) end_asked.store(true, std::memory_order_relaxed);
  return std::nullopt;
}

std::string clipped(std::string const& line, std::size_t columns) {
  std::string text;
  std::size_t used = 0;
  bool is_coloured = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    auto const byte = static_cast<unsigned char>(line[i]);
    if (byte == 0x1BU) {
      auto const end = std::min(line.find('m', i), line.size() - 1);
      text += line.substr(i, end - i + 1);
      is_coloured = true;
      i = end;
      continue;
    }
    auto const starts_character = (byte & 0xC0U) != 0x80U;
    if (starts_character && used == columns) break;
    used += starts_character ? 1 : 0;
    text += line[i];
  }
  return is_coloured ? text + "\x1b[0m" : text;
}

}  // namespace headroom::command
