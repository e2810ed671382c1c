// headroom: one exporter for all processes of a machine.
// Layer: exporter
//
// Watches folders of flight files and serves every process in them as one scrape target: no port per process, and short jobs and
// crashes are seen. A file is mapped when it appears, so that a job of 50 ms counts. `headroom export` is this class and a command line.
//
// Gauges of a process end with it; its counters stay for `keep_dead`, then their sums go into headroom_exited_*_total, by process name.
// For every one of these counters: Σ of the series + exited = all that was counted since the exporter began. Series have the label
// `host`, the host name in the file: two processes that are both pid 1 of their pods stay two.
//
// A killed process's file becomes a post-mortem (post_mortem.hpp) and is then removed if it belongs to the user we run as.
// Files that cannot be read, or are not their folder owner's, are counted by reason, logged once, and never the end of anything.
//
// For people it serves the same as the exporter of a process does, for all of them: the live page, its state as JSON, and post-mortems of
// the living (`/snapshot.json?process=PID`). On a loopback address it answers for localhost and IP addresses alone; exporter/README.md.
//
// Bounds: 1,024 processes with series of their own (4,096 at all, fewer where there are not as many descriptors; the others only in sums),
// 512 ended ones kept, 256 names in sums, 4,096 files a folder; 256 tags of a process have series, the rest is in tag="other". Each bound
// has a count of what is beyond it. Users of one machine share them, and a flight file may claim anything: watch the folders of those
// who may share a machine, and trust a process's figures as far as its user.
//
// Fork: the parent serves on; in the child every member does nothing but say where the parent's is. Exit: its threads end first.
// Thread safety: reload() and const members from any thread; start, stop, move and destruction as for any value.
// Cost: four threads that sleep, one for each connection, a descriptor and the address space of a flight file for each process (some
// MiB; the format allows 1 GiB); a scrape reads each process's books.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <headroom/error.hpp>

namespace headroom {

struct NodeExporterOptions {
  std::string listen = "127.0.0.1:9479";  ///< as ExporterOptions::listen
  /// Folders of flight files; one that is missing is waited for. Empty: HEADROOM_DIR alone when it is set, else those of this user's
  /// programs, and of all users what may be read: /dev/shm/headroom-<uid>, /run/user/<uid>/headroom, /run/headroom/headroom-<uid> and
  /// /run/headroom.
  std::vector<std::string> folders;
  std::chrono::nanoseconds keep_dead{std::chrono::minutes{5}};
  bool post_mortems = true;
  std::string dump_folder;  ///< of post-mortems; empty: HEADROOM_DUMP_DIR and so on, as for programs

  /// PEM files; both or none. With them only TLS is spoken.
  std::string tls_certificate, tls_key;
  /// Lines of `user:hash` as `htpasswd -B` writes them; empty: everybody may read. /-/healthy is for everybody.
  std::string auth_file;

  /// Installs a SIGBUS handler, so that a file that somebody truncates does not end the process. Only for programs that do nothing else:
  /// a signal handler is the program's affair.
  bool survive_truncation = false;
  std::function<void(std::string const&)> log;  ///< one line of text, from any thread; must not throw. Empty: stderr
};

class NodeExporter {
public:
  /// Serves when it returns. Errors: parse (the address; a certificate, key or line of the auth file), invalid_argument (a certificate
  /// without a key), io (it cannot listen; a file or folder cannot be read). Each says what was found and what was expected; those about
  /// files and folders have Layer::resource, those about the address Layer::request.
  [[nodiscard]] static Result<NodeExporter> start(NodeExporterOptions options);

  NodeExporter(NodeExporter&& other) noexcept;
  NodeExporter& operator=(NodeExporter&& other) noexcept;
  ~NodeExporter();

  /// Reads certificate, key and auth file again, for connections from now on. After an error everything is as it was.
  [[nodiscard]] Result<void> reload();

  [[nodiscard]] std::uint16_t port() const noexcept;
  [[nodiscard]] std::string address() const;  ///< HOST:PORT as bound
  [[nodiscard]] std::string url() const;      ///< what to open on this machine

  /// Closes the port and all connections and waits for the threads. May be called again.
  void stop() noexcept;

private:
  class Core;
  explicit NodeExporter(std::unique_ptr<Core> core) noexcept;
  std::unique_ptr<Core> core_;
};

}  // namespace headroom
