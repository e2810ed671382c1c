// Writes the seed corpus of post_mortem_reader_fuzz into a folder: dumps of a small flight file, whole, cut, and by hand.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "compact_flight.hpp"
#include "post_mortems.hpp"

int main(int count, char** arguments) {
  if (count != 2) {
    static_cast<void>(std::fprintf(stderr, "usage: post_mortem_reader_seeds FOLDER\n"));
    return 2;
  }
  const std::filesystem::path folder{arguments[1]};
  std::filesystem::create_directories(folder);
  bool good = true;
  const auto add = [&](std::string const& name, std::string_view text) {
    std::ofstream file{folder / name, std::ios::binary | std::ios::trunc};
    file << text;
    good = good && file.good();
  };
  const auto file = headroom::flight::compact_flight();
  const auto view = headroom::flight::FlightView::over(file.bytes(), "compact");
  if (!view) return 1;
  const auto whole = headroom::test::post_mortem_text(*view, {.liveness = headroom::flight::Liveness::dead});
  add("whole", whole);
  add("state", headroom::test::post_mortem_text(*view, {.options = {.events = false}}));
  for (std::size_t parts = 1; parts < 8; ++parts)
    add("cut-" + std::to_string(parts), std::string_view{whole}.substr(0, whole.size() * parts / 8));
  const std::string begin = R"({"schema":{"name":"headroom-post-mortem","version":1})";
  add("begin", begin);
  add("failure",
      begin +
          R"(,"failure":{"requested_bytes":5,"kind":"overflow","figures":{"limit_bytes":"9007199254740993"},"hooks":[{"hook":1,"result":"freed"}],"policy_steps":[{"step":"gave_up","granted":false}]},"end":{"status":"partial"}})");
  add("hook",
      begin +
          R"(,"hooks":[{"id":3,"name":"a\\x00b","priority":-5,"duration_histogram":[0,1]},{"priority":"-9223372036854775807"}]})");
  add("rows", begin + R"(,"live":{"bytes":7,"rows":[["0x10",7,1,2,3,4,"live",256,"0x0",9,"0x1",0,1]]},"events":{"rows":[]}})");
  return good ? 0 : 1;
}
