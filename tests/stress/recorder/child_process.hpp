// Child processes with a recorder of their own. A process starts its recorder once, so whatever must happen around that start
// (folders, environment, namespaces, death) happens in this executable run again under a role.
//
//   const Role kRole{"says-hello", [](auto const& arguments) { std::puts("hello"); return 0; }};
//   Child child{"says-hello", {}, {.environment = {"HEADROOM_DIR=/somewhere"}}};
//   EXPECT_EQ(child.line(), "hello");
//
// Thread safety: none; a Child belongs to one thread.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace headroom::test {

/// What a role returns when the system does not permit what it needs; its last line on stdout says what.
inline constexpr int kNotPermitted = 77;

class Role {
public:
  using Body = int (*)(std::vector<std::string> const& arguments);
  Role(std::string_view name, Body body);
  /// The exit status of a role, for main().
  static int play(std::string_view name, std::vector<std::string> const& arguments);
};

struct ChildOptions {
  std::vector<std::string> environment{};  ///< NAME=value, beside what this process has; HEADROOM_* is not inherited
  std::vector<std::string> wrapper{};      ///< a command that runs the role, such as {"unshare", "--pid", "--fork"}
  bool as_nobody = false;                  ///< gives up root before it runs
};

class Child {
public:
  Child(std::string const& role, std::vector<std::string> const& arguments, ChildOptions const& options = {});
  ~Child();  ///< kills what still runs
  Child(Child const&) = delete;
  Child& operator=(Child const&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// The next line of its output without the end of line; empty at its end. Waits up to 4 minutes.
  [[nodiscard]] std::string line();
  void kill(int signal = 9) const noexcept;
  /// Reads the rest of the output and waits. The exit status, or −signal; −1000 when it hung for 4 minutes and was killed.
  int wait();
  [[nodiscard]] std::string const& output() const noexcept { return output_; }  ///< after wait(): what line() did not take
  [[nodiscard]] std::string const& errors() const noexcept { return errors_; }  ///< after wait(): its stderr

private:
  bool read_some(int timeout_ms);
  pid_t pid_ = -1;
  int output_fd_ = -1, errors_fd_ = -1;
  std::string output_, errors_;
};

/// A folder of its own, removed with everything in it.
class TemporaryFolder {
public:
  explicit TemporaryFolder(std::string parent = {});  ///< empty: $TMPDIR or /tmp
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder const&) = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;
  [[nodiscard]] std::string const& path() const noexcept { return path_; }

private:
  std::string path_;
};

}  // namespace headroom::test
