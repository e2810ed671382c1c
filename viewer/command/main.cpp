// headroom-viewer: reads the command line, opens a window, and answers with a documented exit code whatever happens.
#include <exception>
#include <iostream>
#include <utility>
#include <variant>

#include "application.hpp"
#include "options.hpp"

int main(int argc, char** argv) {
  try {
    auto options = headroom::viewer::read_options(argc, argv);
    if (auto const* const code = std::get_if<int>(&options)) return *code;
    return static_cast<int>(headroom::viewer::Application{std::move(std::get<headroom::viewer::Options>(options))}.run());
  } catch (std::exception const& error) {
    std::cerr << "headroom-viewer: " << error.what() << '\n';
    return static_cast<int>(headroom::viewer::ExitCode::broken_input);
  }
}
