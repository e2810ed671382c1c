#include "flight/process_identity.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <sys/random.h>
#include <unistd.h>

#include "base/clock.hpp"
#include "flight/liveness.hpp"

namespace headroom::flight {
namespace {

std::string read_text(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
  return text;
}

std::uint64_t random_run() {
  std::uint64_t run = 0;
  if (getrandom(&run, sizeof run, GRND_NONBLOCK) != static_cast<ssize_t>(sizeof run)) {
    const ClockTriple now = clock_triple_now();  // early boot without entropy: time and pid still tell two runs apart
    run = now.realtime_ns * 0x9E3779B97F4A7C15ULL ^ now.ticks ^ (static_cast<std::uint64_t>(getpid()) << 48);
  }
  return run;
}

}  // namespace

ProcessIdentity identify_process() {
  ProcessIdentity identity;
  identity.pid = static_cast<std::uint64_t>(getpid());
  identity.uid = geteuid();
  identity.start_ticks = start_ticks_in(read_text("/proc/self/stat"));
  identity.run = random_run();
  identity.program = read_text("/proc/self/comm");
  identity.command = read_text("/proc/self/cmdline");
  std::ranges::replace(identity.command, '\0', ' ');
  identity.boot_id = boot_id();
  identity.host = host_name();
  return identity;
}

std::string boot_id() { return read_text("/proc/sys/kernel/random/boot_id"); }

std::string host_name() {
  char host[256] = {};
  return gethostname(host, sizeof host - 1) == 0 ? host : "";
}

}  // namespace headroom::flight
