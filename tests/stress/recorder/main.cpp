// Runs the tests, or one role of a child process (child_process.hpp).
#include <string_view>

#include <gmock/gmock.h>

#include "child_process.hpp"

int main(int count, char** arguments) {
  if (count >= 3 && std::string_view{arguments[1]} == "--role") {
    return headroom::test::Role::play(arguments[2], {arguments + 3, arguments + count});
  }
  testing::InitGoogleMock(&count, arguments);
  return RUN_ALL_TESTS();
}
