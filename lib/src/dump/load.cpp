// From a parsed dump to the structs of readers; ledgers and failures have files of their own.
#include <headroom/post_mortem_reader.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include <headroom/post_mortem.hpp>

#include "dump/document.hpp"
#include "dump/fields.hpp"
#include "dump/load_parts.hpp"
#include "dump/words.hpp"

namespace headroom {
namespace {

using dump::Fields;

/// What the writer begins with, without blanks: a dump that was cut within it is still told from something else.
constexpr std::string_view kBeginning = R"({"schema":{"name":"headroom-post-mortem")";

std::string without_blanks(std::string_view text, std::size_t most) {
  std::string out;
  for (const char c : text) {
    if (out.size() == most) break;
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') out += c;
  }
  return out;
}

void take_head(Fields const& top, PostMortem& dump) {
  top.object("reason", [&](Fields const& reason) {
    reason.text("kind", dump.reason_kind);
    reason.text("text", dump.reason);
  });
  top.object("contents", [&](Fields const& contents) {
    contents.text("events", dump.events_contents);
    contents.text("events_left_out_because", dump.events_left_out_because);
  });
  top.object("written", [&](Fields const& written) {
    written.number("realtime_ns", dump.written_realtime_ns);
    written.number("monotonic_ns", dump.written_monotonic_ns);
  });
  top.object("end", [&](Fields const& end) {
    std::string status;
    end.text("status", status);
    dump.complete = status == "complete";
  });
}

void take_process(Fields const& top, PostMortem& dump) {
  auto& process = dump.process;
  top.object("process", [&](Fields const& fields) {
    fields.number("pid", process.pid);
    fields.number("uid", process.uid);
    fields.number("run", process.run);
    fields.text("program", process.program);
    fields.text("command", process.command);
    fields.text("host", process.host);
    fields.text("boot_id", process.boot_id);
    fields.number("start_realtime_ns", process.start_realtime_ns);
    fields.word("state", dump::kProcessStateWords, process.state);
    fields.word("liveness", dump::kLivenessWords, dump.liveness);
    fields.number("last_activity_realtime_ns", process.last_activity_realtime_ns);
    fields.object("build", [&](Fields const& build) { build.text("headroom", process.version); });
    fields.object("flight_file", [&](Fields const& file) {
      file.text("path", dump.flight_path);
      file.flag("was_shrunk", process.was_shrunk);
      file.flag("events_off", process.events_off);
      std::string backing;
      file.text("backing", backing);
      process.backing = backing == "anonymous" ? flight::Backing::anonymous : flight::Backing::file;
    });
    fields.object("exporter", [&](Fields const& exporter) {
      exporter.word("state", dump::kExporterStateWords, process.exporter_state);
      exporter.number("port", process.exporter_port);
    });
    fields.object("refused_events", [&](Fields const& refused) {
      refused.number("no_lane", process.refused_no_lane);
      refused.number("reentrant", process.refused_reentrant);
      refused.number("early", process.refused_early);
    });
    fields.object("folded", [&](Fields const& folded) {
      folded.number("tags", process.tags_folded);
      folded.number("sites", process.sites_folded);
      folded.number("ledgers_without_cell", process.ledgers_without_cell);
    });
  });
  top.object("clock", [&](Fields const& clock) {
    clock.number("ticks_per_second", dump.ticks_per_second);
    clock.elements("syncs", [&](nlohmann::json const& element, std::string const& place) {
      std::array<std::uint64_t, 3> figures{};
      bool good = element.is_array() && element.size() == figures.size();
      for (std::size_t i = 0; good && i < figures.size(); ++i) {
        auto const number = dump::whole_number_of(element[i]);
        good = number.has_value();
        figures[i] = number.value_or(0);
      }
      if (!good) return clock.problem().note(place, element, "three whole numbers");
      dump.syncs.push_back({figures[0], figures[1], figures[2]});
    });
  });
}

void take_devices(Fields const& top, PostMortem& dump) {
  top.objects("devices", [&](Fields const& fields) {
    auto& device = dump.devices.emplace_back();
    fields.number("id", device.id);
    fields.text("name", device.name);
    fields.text("uuid", device.uuid);
    fields.text("pci_address", device.pci_address);
    fields.number("ordinal", device.ordinal);
    fields.number("total_bytes", device.total_bytes);
    fields.number("free_bytes", device.free_bytes);
    fields.number("outside_bytes", device.outside_bytes);
    dump.names[device.id] = device.name;
  });
}

void take_lists(Fields const& top, PostMortem& dump) {
  top.objects("in_flight", [&](Fields const& fields) {
    auto& operation = dump.in_flight.emplace_back();
    fields.number("lane", operation.lane);
    fields.number("thread", operation.thread);
    fields.text("thread_name", operation.thread_name);
    fields.word("operation", dump::kInFlightWords, operation.operation);
    fields.number("ledger", operation.ledger);
    fields.number("bytes", operation.bytes);
    fields.number("since_ticks", operation.since_ticks);
  });
  top.objects("sites", [&](Fields const& fields) {
    auto& site = dump.sites.emplace_back();
    fields.number("id", site.id);
    fields.text("name", site.name);
    fields.number("line", site.line);
    fields.number("live_bytes", site.live_bytes);
    fields.number("live_allocations", site.live_allocations);
    dump.names[site.id] = site.name;
  });
  top.objects("names", [&](Fields const& fields) {
    auto& name = dump.other_names.emplace_back();
    fields.number("id", name.id);
    fields.text("kind", name.kind);
    fields.number("number", name.number);
    fields.text("name", name.name);
    dump.names[name.id] = name.name;
  });
  top.object("live", [&](Fields const& fields) {
    fields.number("allocations", dump.live_allocations);
    fields.number("bytes", dump.live_bytes);
  });
  top.objects("lanes", [&](Fields const& fields) {
    auto& lane = dump.lanes.emplace_back();
    fields.number("lane", lane.lane);
    fields.flag("owned", lane.owned);
    fields.number("thread", lane.thread);
    fields.text("thread_name", lane.thread_name);
    for (auto const& [name, ring] : {std::pair{"main", &lane.main}, std::pair{"journal", &lane.journal}}) {
      fields.object(name, [&, into = ring](Fields const& figures) {
        figures.number("recorded", into->recorded);
        figures.number("listed", into->listed);
        figures.number("first", into->first);
        figures.number("last", into->last);
        figures.number("lost", into->lost);
      });
    }
    dump.process.events_recorded += lane.main.recorded + lane.journal.recorded;
    if (lane.owned) ++dump.process.lanes_in_use;
  });
}

[[nodiscard]] tl::unexpected<Error> broken(std::string_view name, std::string const& what) {
  return fail(ErrorKind::parse, Layer::request, std::string{name} + ": " + what);
}

Result<void> check_schema(Fields const& top, std::string_view name, PostMortem& dump) {
  std::string schema;
  top.object("schema", [&](Fields const& fields) {
    fields.text("name", schema);
    fields.number("version", dump.version);
  });
  if (schema.empty() && dump.truncated) return success();  // cut before its name: its beginning was looked at
  if (schema != kPostMortemSchema) {
    return broken(name, "found the schema '" + schema + "', expected '" + std::string{kPostMortemSchema} + '\'');
  }
  if (dump.version > kPostMortemVersion) {
    return fail(ErrorKind::unsupported, Layer::request,
                std::string{name} + ": a post-mortem of version " + std::to_string(dump.version) + ", this program reads up to " +
                    std::to_string(kPostMortemVersion));
  }
  return success();
}

}  // namespace

std::string PostMortem::label(std::uint32_t id) const {
  auto const found = names.find(id);
  return found == names.end() ? std::string{} : found->second;
}

bool looks_like_post_mortem(std::string_view beginning) noexcept {
  const std::size_t bracket = beginning.find_first_not_of(" \n\r\t");
  return bracket != std::string_view::npos && beginning[bracket] == '{' &&
         beginning.find("\"headroom-post-mortem\"") != std::string_view::npos;
}

Result<PostMortem> read_post_mortem(std::string_view text, std::string_view name) {
  if (text.empty()) return broken(name, "empty, expected a post-mortem");
  const std::string beginning = without_blanks(text, kBeginning.size());
  if (!looks_like_post_mortem(text) && !kBeginning.starts_with(beginning)) {
    return broken(name,
                  "byte 0: no post-mortem: found '" + beginning.substr(0, 20) + "', expected '" + std::string{kBeginning} + "'");
  }
  auto parsed = dump::parse_document(text, name);
  if (!parsed) return tl::unexpected{std::move(parsed.error())};
  PostMortem result;
  result.truncated = parsed->truncated;
  result.live = std::move(parsed->live);
  result.events = std::move(parsed->events);
  if (parsed->state.is_null()) return result;  // cut within the first bracket
  dump::Problem problem;
  const Fields top{parsed->state, {}, problem};
  if (auto const known = check_schema(top, name, result); !known) return tl::unexpected{known.error()};
  take_head(top, result);
  take_process(top, result);
  top.object("failure", [&](Fields const& fields) { dump::take_failure(fields, result.failure.emplace()); });
  take_devices(top, result);  // ledgers name them
  dump::take_ledgers(top, result);
  dump::take_hooks(top, result);
  dump::take_first_failures(top, result);
  take_lists(top, result);
  if (!problem.text().empty()) return broken(name, problem.text());
  return result;
}

Result<PostMortem> load_post_mortem(std::string const& path) {
  struct Close {
    void operator()(std::FILE* file) const noexcept {
      if (file != stdin) std::fclose(file);
    }
  };
  const bool is_input = path == "-";
  const std::string name = is_input ? "standard input" : path;
  const std::unique_ptr<std::FILE, Close> file{is_input ? stdin : std::fopen(path.c_str(), "rbe")};
  if (file == nullptr) return fail(ErrorKind::io, Layer::request, name + ": " + std::strerror(errno));
  std::string text;
  std::array<char, 65'536> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by fread
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), file.get())) {
    text.append(piece.data(), got);
    if (text.size() > kMostDumpBytes) return broken(name, "larger than " + std::to_string(kMostDumpBytes) + " bytes");
  }
  if (std::ferror(file.get()) != 0) return fail(ErrorKind::io, Layer::request, name + ": " + std::strerror(errno));
  return read_post_mortem(text, name);
}

}  // namespace headroom
