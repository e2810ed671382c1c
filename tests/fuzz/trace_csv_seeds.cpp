// Writes the seed corpus of trace_csv_fuzz into a folder. The first byte of each says how the rest is packed, see there.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

int main(int count, char** arguments) {
  using namespace std::string_view_literals;
  if (count != 2) {
    static_cast<void>(std::fprintf(stderr, "usage: trace_csv_seeds FOLDER\n"));
    return 2;
  }
  constexpr auto kHeader = "Thread,Time,Action,Pointer,Size,Stream\n"sv;
  constexpr std::string_view kHistories[] = {
      ""sv,
      "1,0,allocate,0x7f00,256,0x0\n1,1,free,0x7f00,256,0x0\n"sv,
      "1,0,allocate,0x7f00,256,0\r\n\r\n2,9,free,0x7f00,256,(nil)"sv,
      "0x1,23:59:59.999999,allocate,(nil),0,0\n0x1,00:00:00.000001,allocate failure,(nil),99,0\n"sv,
      "1,23:59:59:999999,allocate,0x1,18446744073709551615,0xff\n1,x,free,0x1,1,0\n"sv,
      "1,0,allocate,0x7f00,256\n"sv,
      "1,0,allo"sv,
  };
  const std::filesystem::path folder{arguments[1]};
  std::filesystem::create_directories(folder);
  bool good = true;
  for (const char packing : {char{0}, char{1}, char{2}, char{4}, char{5}, char{6}}) {
    int number = 0;
    for (auto const history : kHistories) {
      std::ofstream file{folder / (std::to_string(packing) + "-" + std::to_string(number++)), std::ios::binary | std::ios::trunc};
      file << packing << kHeader << history;
      good = good && file.good();
    }
  }
  return good ? 0 : 1;
}
