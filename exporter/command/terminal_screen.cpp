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
#include <ctime>
#include <string_view>
#include <utility>

#include "command/output.hpp"

namespace headroom::command {
namespace {

// Second screen, no cursor, and no new line where one is full: fonts and terminals differ in how wide a character is.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

// Written before any handler can run, and not again while one can.
struct termios before{};

// All written by signal handlers and by the one thread that owns the screen, in any order of the two; relaxed: `before` is written
// while no handler is installed, and nothing else is read through them.
constinit std::atomic<bool> shown{false};        // the terminal is ours: whoever takes it back to false puts it back
constinit std::atomic<bool> end_asked{false};    // a signal came that ends the program
constinit std::atomic<bool> stop_asked{false};   // Ctrl-Z
constinit std::atomic<bool> redraw_asked{true};  // the window has changed, or the screen is back
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
  redraw_asked.store(true, std::memory_order_relaxed);
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
extern "C" void on_resize(int /*number*/) { redraw_asked.store(true, std::memory_order_relaxed); }

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

/// While it lives, the signals that end a wait are held back, so that none comes between the look at what they ask for and the wait.
class SignalsHeldBack {
public:
  SignalsHeldBack() noexcept {
    sigset_t held{};
    sigemptyset(&held);
    for (auto const number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) sigaddset(&held, number);
    ::pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~SignalsHeldBack() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeldBack(SignalsHeldBack const&) = delete;
  SignalsHeldBack& operator=(SignalsHeldBack const&) = delete;

  /// True when there is something to read. Signals are let in for just as long as it waits.
  [[nodiscard]] bool wait_for_input(std::chrono::milliseconds time) const noexcept {
    auto const seconds = std::chrono::floor<std::chrono::seconds>(time);
    struct timespec const limit{.tv_sec = static_cast<std::time_t>(seconds.count()),
                                .tv_nsec = static_cast<long>(std::chrono::nanoseconds{time - seconds}.count())};
    struct pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    return ::ppoll(&input, 1, &limit, &before_) > 0;
  }

private:
  sigset_t before_{};
};

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

bool TerminalScreen::must_redraw() noexcept { return redraw_asked.exchange(false, std::memory_order_relaxed); }

void TerminalScreen::show(std::string const& frame) {
  auto const [columns, rows] = size();
  std::string text = "\x1b[H";
  std::size_t row = 0;
  for (std::size_t begin = 0; begin < frame.size() && row < rows; ++row) {
    auto const end = std::min(frame.find('\n', begin), frame.size());
    // Each line is erased before it is written: after a full one the cursor stands on its last cell, and would take that along.
    if (row != 0) text += '\n';
    text += "\x1b[K" + clipped(frame.substr(begin, end - begin), columns);
    begin = end + 1;
  }
  if (row < rows) text += (row == 0 ? "" : "\n") + std::string{"\x1b[J"};
  put(text);
}

std::optional<char> TerminalScreen::wait_for_key(std::chrono::milliseconds time) {
  SignalsHeldBack const held;
  if (stop_asked.exchange(false, std::memory_order_relaxed)) {
    leave();
    ::raise(SIGSTOP);  // here the shell has the terminal, until SIGCONT
    static_cast<void>(enter());
  }
  if (must_end() || redraw_asked.load(std::memory_order_relaxed)) return std::nullopt;
  if (!held.wait_for_input(time)) return std::nullopt;
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
  std::string_view rest = line;
  while (!rest.empty()) {
    auto length = character_length(rest);
    if (rest.front() == '\x1b') {
      length = std::min(rest.find('m'), rest.size() - 1) + 1;
      is_coloured = true;
    } else {
      used += width_of(rest.substr(0, length));
      if (used > columns) break;
    }
    text += rest.substr(0, length);
    rest.remove_prefix(length);
  }
  return is_coloured ? text + "\x1b[0m" : text;
}

}  // namespace headroom::command
