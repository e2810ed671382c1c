#include "child_process.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace headroom::test {
namespace {

constexpr uid_t kNobody = 65534;
// When a child has hung, not when it is slow: a little less than the time limit of a test, so that it is said and cleaned up.
constexpr std::chrono::minutes kHung{4};

std::map<std::string, Role::Body, std::less<>>& roles() {
  static std::map<std::string, Role::Body, std::less<>> all;
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> environment_with(std::vector<std::string> const& more) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "HEADROOM_", 9) != 0 || std::strncmp(*entry, "HEADROOM_TEST", 13) == 0) all.emplace_back(*entry);
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

Role::Role(std::string_view name, Body body) { roles().emplace(name, body); }

int Role::play(std::string_view name, std::vector<std::string> const& arguments) {
  const auto role = roles().find(name);
  if (role == roles().end()) {
    std::fprintf(stderr, "no role %.*s\n", static_cast<int>(name.size()), name.data());
    return 70;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return role->second(arguments);
}

Child::Child(std::string const& role, std::vector<std::string> const& arguments, ChildOptions const& options) {
  std::vector<std::string> command = options.wrapper;
  command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  command.emplace_back("--role");
  command.push_back(role);
  command.insert(command.end(), arguments.begin(), arguments.end());
  auto environment = environment_with(options.environment);
  auto argv = pointers(command);
  auto envp = pointers(environment);
  // A path that root may walk need not be open to others, so the program is run through its descriptor.
  const int program = options.wrapper.empty() ? open("/proc/self/exe", O_RDONLY | O_CLOEXEC) : -1;
  int output[2];
  int errors[2];
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0)
    throw std::system_error{errno, std::generic_category(), "pipe"};
  pid_ = fork();
  if (pid_ == 0) {
    // Only calls that are safe after a fork from now on.
    dup2(output[1], 1);
    dup2(errors[1], 2);
    signal(SIGPIPE, SIG_DFL);
    if (options.as_nobody && (setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(kNobody, kNobody, kNobody) != 0)) _exit(71);
    if (program >= 0) fexecve(program, argv.data(), envp.data());
    if (program < 0) execvpe(argv[0], argv.data(), envp.data());
    _exit(72);
  }
  close(output[1]);
  close(errors[1]);
  if (program >= 0) close(program);
  output_fd_ = output[0];
  errors_fd_ = errors[0];
}

Child::~Child() {
  if (pid_ > 0) {
    kill();
    waitpid(pid_, nullptr, 0);
  }
  if (output_fd_ >= 0) close(output_fd_);
  if (errors_fd_ >= 0) close(errors_fd_);
}

void Child::kill(int signal) const noexcept {
  if (pid_ > 0) ::kill(pid_, signal);
}

// False when nothing came in time, or nothing ever will.
bool Child::read_some(int timeout_ms) {
  pollfd polled[2] = {{output_fd_, POLLIN, 0}, {errors_fd_, POLLIN, 0}};
  if (output_fd_ < 0 && errors_fd_ < 0) return false;
  if (poll(polled, 2, timeout_ms) <= 0) return false;
  const auto take = [](pollfd const& which, int& fd, std::string& into) {
    if (fd < 0 || which.revents == 0) return;
    char some[4096];
    const auto got = read(fd, some, sizeof some);
    if (got > 0) {
      into.append(some, static_cast<std::size_t>(got));
    } else {
      close(fd);
      fd = -1;
    }
  };
  take(polled[0], output_fd_, output_);
  take(polled[1], errors_fd_, errors_);
  return true;
}

std::string Child::line() {
  const auto deadline = std::chrono::steady_clock::now() + kHung;
  std::size_t end = output_.find('\n');
  while (end == std::string::npos && std::chrono::steady_clock::now() < deadline && (read_some(200) || output_fd_ >= 0)) {
    end = output_.find('\n');
  }
  if (end == std::string::npos) return {};
  std::string found = output_.substr(0, end);
  output_.erase(0, end + 1);
  return found;
}

int Child::wait() {
  const auto deadline = std::chrono::steady_clock::now() + kHung;
  int status = 0;
  pid_t ended = 0;
  // A grandchild may hold the pipes open: what counts is the child's own end.
  while ((ended = waitpid(pid_, &status, WNOHANG)) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill();
      waitpid(pid_, nullptr, 0);
      pid_ = -1;
      return -1000;
    }
    if (!read_some(5)) usleep(1000);
  }
  while (read_some(0)) {
  }
  pid_ = -1;
  return ended < 0 ? -1001 : WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TemporaryFolder::TemporaryFolder(std::string parent) {
  const char* chosen = std::getenv("TMPDIR");
  if (parent.empty()) parent = chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
  path_ = parent + "/headroom-test-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) throw std::system_error{errno, std::generic_category(), path_};
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace headroom::test
