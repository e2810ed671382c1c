#include "flight/recorder.hpp"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <headroom/flight_publish.hpp>

#include "base/clock.hpp"
#include "base/utf8.hpp"
#include "flight/directory.hpp"
#include "flight/emit.hpp"
#include "flight/flight_file.hpp"
#include "flight/process_identity.hpp"
#include "flight/process_mapping.hpp"
#include "flight/tag_names.hpp"
#include "flight/thread_state.hpp"

namespace headroom::flight {

constinit Recorder recorder;
constinit std::atomic<bool> forked_child{false};

namespace {

std::once_flag started;
std::atomic<bool> ready{false};  // written by the starter (release), read by process_mapping (acquire)
std::atomic<bool> keep{false};
int alive_fd = -1;                 // holds the lock
int reading_fd = -1;               // for a forked child
std::string* file_path = nullptr;  // never freed: exit handlers of any order may ask for it
pid_t owner_pid = 0;

void say(std::string const& notice) {
  if (!notice.empty()) std::fprintf(stderr, "headroom: %s\n", notice.c_str());
}

bool environment_is(const char* name, std::string_view value) {
  const char* text = std::getenv(name);
  return text != nullptr && value == text;
}

// The child must neither touch the parent's books nor keep the parent looking alive. A private mapping takes the place of the shared
// one at the same address, so that every pointer stays good. It is made from a second open of the file: a mapping keeps its open file
// description, and with it the lock, for as long as the child lives.
void detach_child() noexcept {
  if (recorder.base == nullptr) return;  // forked before the start
  forked_child.store(true, std::memory_order_relaxed);
  if (alive_fd >= 0) {
    const int private_copy = MAP_PRIVATE | MAP_FIXED;
    if (reading_fd < 0 ||
        mmap(recorder.base, recorder.geometry.bytes, PROT_READ | PROT_WRITE, private_copy, reading_fd, 0) == MAP_FAILED) {
      // Without the copy the next store would change the parent's books: anonymous zeros are the lesser evil.
      if (mmap(recorder.base, recorder.geometry.bytes, PROT_READ | PROT_WRITE, private_copy | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        _exit(127);
    }
    close(std::exchange(alive_fd, -1));
    if (reading_fd >= 0) close(std::exchange(reading_fd, -1));
  }
  forget_thread_after_fork();
}

void close_at_exit() noexcept {
  if (getpid() != owner_pid) return;
  recorder.header->state.store(static_cast<std::uint64_t>(ProcessState::closed), std::memory_order_release);
  if (!keep.load(std::memory_order_relaxed) && file_path != nullptr && alive_fd >= 0) unlink(file_path->c_str());
}

template <class T>
T* region(FlightMemory const& memory, Region which) noexcept {
  return reinterpret_cast<T*>(memory.base + memory.geometry[which].offset);
}

void find_regions(FlightMemory const& memory) noexcept {
  recorder.base = memory.base;
  recorder.geometry = memory.geometry;
  recorder.header = reinterpret_cast<FileHeader*>(memory.base);
  recorder.syncs = region<ClockSync>(memory, Region::clock_syncs);
  recorder.directory = region<DirectoryEntry>(memory, Region::directory);
  recorder.ledgers = region<LedgerCell>(memory, Region::ledgers);
  recorder.tallies = region<LedgerTallies>(memory, Region::tallies);
  recorder.ledger_bases = region<LedgerCounters>(memory, Region::ledger_bases);
  recorder.tag_bases = region<TagCell>(memory, Region::tag_bases);
  recorder.hooks = region<HookCell>(memory, Region::hooks);
  recorder.first_failures = region<FirstFailure>(memory, Region::first_failures);
  recorder.slots = region<LiveSlot>(memory, Region::live_slots);
  recorder.shares = region<LiveShare>(memory, Region::live_shares);
  recorder.lanes = region<std::byte>(memory, Region::lanes);
  recorder.overflow = region<OverflowBooks>(memory, Region::overflow);
}

template <std::size_t N>
void put_text(char (&field)[N], std::string const& text) {
  const std::string clean = valid_utf8(text, N - 1);
  std::memcpy(field, clean.data(), clean.size());
}

void fill_header(FlightMemory const& memory, ProcessIdentity const& identity) {
  FileHeader& header = *recorder.header;
  describe(memory.geometry, header);
  header.backing = static_cast<std::uint32_t>(memory.backing);
  header.alive_by = static_cast<std::uint32_t>(memory.alive_by);
  header.pid = identity.pid;
  header.uid = identity.uid;
  header.process_start_ticks = identity.start_ticks;
  header.run = identity.run;
  header.clock_source = static_cast<std::uint32_t>(clock_kind());
  header.ticks_per_second = ticks_per_second();
  const ClockTriple start = clock_triple_now();
  header.start_ticks = start.ticks;
  header.start_monotonic_ns = start.monotonic_ns;
  header.start_realtime_ns = start.realtime_ns;
  put_text(header.boot_id, identity.boot_id);
  put_text(header.program, identity.program);
  put_text(header.host, identity.host);
  put_text(header.version, HEADROOM_VERSION);
  put_text(header.command, identity.command);
  header.directory_used.store(1, std::memory_order_relaxed);  // entry 0 means "none"
  header.events_off.store(recorder.events ? 0 : 1, std::memory_order_relaxed);
  header.next_sync_ticks.store(start.ticks, std::memory_order_relaxed);
  header.state.store(static_cast<std::uint64_t>(ProcessState::live), std::memory_order_release);
  header.magic.store(kMagic, std::memory_order_release);
}

void start() {
  const ProcessIdentity identity = identify_process();
  owner_pid = static_cast<pid_t>(identity.pid);
  keep.store(environment_is("HEADROOM_KEEP", "1"), std::memory_order_relaxed);

  std::string notice;
  const bool off = environment_is("HEADROOM_FLIGHT", "off");
  FlightMemory memory = make_flight_memory({.program = identity.program,
                                            .pid = identity.pid,
                                            .run = identity.run,
                                            .anonymous = off,
                                            .group_readable = environment_is("HEADROOM_GROUP", "1"),
                                            .sizes = {}},
                                           notice);
  if (memory.base == nullptr) return;
  find_regions(memory);
  recorder.events = !off;
  __extension__ using Wide = unsigned __int128;
  recorder.ticks_to_ns_multiplier = static_cast<std::uint64_t>((Wide{1'000'000'000} << 32) / ticks_per_second());
  recorder.sync_interval_ticks = ticks_per_second();
  fill_header(memory, identity);
  publish_file(memory, notice);
  alive_fd = memory.fd;
  reading_fd = memory.reading_fd;
  if (memory.backing == Backing::file) file_path = new std::string(memory.path);
  write_clock_sync_if_due(recorder.header->start_ticks);

  prepare_thread_exit();
  std::atexit(close_at_exit);
  std::at_quick_exit(close_at_exit);
  say(notice);
  ready.store(true, std::memory_order_release);
}

void lock_names() noexcept {
  lock_directory();
  lock_tag_names();
}
void unlock_names() noexcept {
  unlock_tag_names();
  unlock_directory();
}

// A fork on another thread waits until the start is over, as for every change of a name: its child would otherwise inherit half a
// recorder, and the lock.
void start_holding_forks_off() {
  pthread_atfork(lock_names, unlock_names, [] {
    unlock_names();
    detach_child();
  });
  lock_directory();
  start();
  unlock_directory();
}

}  // namespace

bool start_recorder() {
  std::call_once(started, start_holding_forks_off);
  return recorder.base != nullptr;
}

std::span<const std::byte> process_mapping() noexcept {
  if (!ready.load(std::memory_order_acquire)) return {};
  return {recorder.base, recorder.geometry.bytes};
}

void publish_exporter(ExporterState state, std::uint16_t port) noexcept {
  if (!start_recorder()) return;
  recorder.header->exporter_port.store(port, std::memory_order_relaxed);
  recorder.header->exporter_state.store(static_cast<std::uint64_t>(state), std::memory_order_release);
}

void keep_file(bool wanted) noexcept {
  if (start_recorder()) keep.store(wanted, std::memory_order_relaxed);
}

std::string own_file() { return ready.load(std::memory_order_acquire) && file_path != nullptr ? *file_path : std::string{}; }

}  // namespace headroom::flight
