// What a forked child does, looked at from the parent. A child that waits for a thread that it does not have is ended by its alarm.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace headroom::test {

constexpr unsigned kChildSeconds = 60;

inline void expect_ended_well(pid_t child) {
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFSIGNALED(status)) << "the child hung until signal " << WTERMSIG(status);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

/// `act` in a forked child, which must return 0.
template <class Act>
void expect_in_child(Act&& act) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kChildSeconds);
    _exit(act());
  }
  expect_ended_well(child);
}

}  // namespace headroom::test
