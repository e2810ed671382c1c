// headroom export: all processes of this machine as one target for Prometheus.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include <CLI/CLI.hpp>

#include <headroom/node_exporter.hpp>

#include "command/arguments.hpp"
#include "command/output.hpp"
#include "command/subcommand.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom export";

struct ExportArguments {
  std::string listen = "127.0.0.1:9479";
  std::vector<std::string> folders;
  std::string keep_dead = "5m";
  std::string dump_folder;
  std::string certificate, key, auth;
};

/// Each process is a descriptor.
void raise_descriptor_limit() {
  struct rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

/// "5min", as in the documentation, is the same as "5m".
[[nodiscard]] Result<std::chrono::nanoseconds> parse_keep_dead(std::string text) {
  if (text.ends_with("min")) text.resize(text.size() - 2);
  return parse_duration(text);
}

[[nodiscard]] bool is_dump_off(ExportArguments const& arguments) {
  if (!arguments.dump_folder.empty()) return arguments.dump_folder == "off";
  const char* const words = std::getenv("HEADROOM_DUMP");
  return words != nullptr && (std::string_view{words} == "off" || std::string_view{words} == "0");
}

/// Until SIGTERM or SIGINT; SIGHUP reads the files again. The signals are blocked.
void serve(NodeExporter& exporter, sigset_t const& signals) {
  for (;;) {
    int number = 0;
    if (::sigwait(&signals, &number) != 0 || number != SIGHUP) return;
    if (auto const reloaded = exporter.reload(); reloaded) {
      complain(kWho, "read certificate and auth file again");
    } else {
      complain(kWho, printable(reloaded.error().message) + "; everything stays as it was");
    }
  }
}

ExitCode run_export(ExportArguments const& arguments) {
  auto const keep_dead = parse_keep_dead(arguments.keep_dead);
  if (!keep_dead) {
    complain(kWho, "--keep-dead " + keep_dead.error().message);
    return ExitCode::usage;
  }
  // Blocked before there is any thread, so that none of them is interrupted; a log whose reader is gone ends nothing.
  sigset_t signals;
  sigemptyset(&signals);
  for (int const number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  (void)::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  (void)std::signal(SIGPIPE, SIG_IGN);
  raise_descriptor_limit();

  NodeExporterOptions options;
  options.listen = arguments.listen;
  options.folders = arguments.folders;
  options.keep_dead = *keep_dead;
  options.post_mortems = !is_dump_off(arguments);
  options.dump_folder = arguments.dump_folder;
  options.tls_certificate = arguments.certificate;
  options.tls_key = arguments.key;
  options.auth_file = arguments.auth;
  options.survive_truncation = true;
  options.log = [](std::string const& line) { complain(kWho, printable(line)); };
  auto exporter = NodeExporter::start(std::move(options));
  if (!exporter) {
    return complain_about(kWho, exporter.error(),
                          exporter.error().layer == Layer::resource ? ExitCode::broken_input : ExitCode::usage);
  }
  complain(kWho, "serving " + exporter->url() + "/metrics on " + exporter->address());
  serve(*exporter, signals);
  exporter->stop();
  return ExitCode::good;
}

}  // namespace

Subcommand add_export(CLI::App& app) {
  auto const arguments = std::make_shared<ExportArguments>();
  auto* const command = app.add_subcommand("export", "Serve all processes of this machine to Prometheus, as one target");
  command
      ->add_option(
          "--listen", arguments->listen,
          "HOST:PORT, [IPv6]:PORT, PORT alone (127.0.0.1), or :PORT for all addresses, IPv6 and IPv4; port 0 is any free one")
      ->type_name("ADDRESS")
      ->capture_default_str()
      ->envname("HEADROOM_EXPORT_LISTEN");
  command
      ->add_option(
          "--dir", arguments->folders,
          "Watch this folder of flight files, and only those that are named; may be repeated, may appear later (default: "
          "$HEADROOM_DIR, else those of this user and of all whose may be read: /dev/shm/headroom-UID, /run/user/UID/headroom, "
          "/run/headroom/headroom-UID, /run/headroom)")
      ->type_name("DIR")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--keep-dead", arguments->keep_dead,
                   "How long the counters of a process that ended keep their series: long enough for two scrapes")
      ->type_name("TIME")
      ->capture_default_str()
      ->envname("HEADROOM_EXPORT_KEEP_DEAD");
  command
      ->add_option("--dump-dir", arguments->dump_folder,
                   "Where post-mortems of killed processes go, at most 32 and 512 MiB of them; off writes none (default: "
                   "$HEADROOM_DUMP_DIR, else ~/.local/state/headroom)")
      ->type_name("DIR")
      ->envname("HEADROOM_EXPORT_DUMP_DIR");
  command->add_option("--tls-cert", arguments->certificate, "Speak TLS alone, with this certificate and its chain (PEM)")
      ->type_name("FILE")
      ->envname("HEADROOM_EXPORT_TLS_CERT");
  command->add_option("--tls-key", arguments->key, "The certificate's key (PEM, no passphrase)")
      ->type_name("FILE")
      ->envname("HEADROOM_EXPORT_TLS_KEY");
  command
      ->add_option("--auth", arguments->auth,
                   "Who may read: lines of user:hash as `htpasswd -B` writes them; /-/healthy needs no password")
      ->type_name("FILE")
      ->envname("HEADROOM_EXPORT_AUTH");
  command->footer(
      "Pages: / (live, for people; text for curl), /metrics, /api/state.json, /snapshot.json?process=PID, /-/healthy. On\n"
      "a loopback address only localhost and IP addresses are answered for: no web page can read it under a name of its own.\n"
      "The process of a 50 ms job counts, and so does one that was killed: its file becomes\n"
      "a post-mortem and is removed, if it belongs to the user that this runs as. Gauges of a process end with it, its\n"
      "counters after --keep-dead; then they are part of headroom_exited_*_total, so that sums do not fall.\n"
      "At most 1,024 processes have series of their own; those beyond are in the sums, and counted.\n"
      "\n"
      "SIGTERM and SIGINT end it, SIGHUP reads certificate, key and auth file again. What happens is told on stderr.\n"
      "\n"
      "Examples:\n"
      "  headroom export\n"
      "  headroom export --listen :9479 --dir /run/headroom --dump-dir /var/lib/headroom\n"
      "  headroom export --listen :9479 --tls-cert node.pem --tls-key node.key --auth users\n"
      "\n"
      "Exit status: 0 ended by a signal, 2 wrong usage, or it cannot listen there, 3 a file or folder that was named cannot be "
      "read\n"
      "or is not what it should be.\n");
  return {.app = command, .run = [arguments] { return run_export(*arguments); }};
}

}  // namespace headroom::command
