// headroom explain: what happened, in plain sentences, for whoever is woken at three in the morning.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "command/explanation.hpp"
#include "command/find_process.hpp"
#include "command/output.hpp"
#include "command/source.hpp"
#include "command/subcommand.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom explain";

struct ExplainArguments {
  std::string file;
  std::optional<std::string> folder;
};

void print(follow::Model const& model, std::string path, std::optional<ProcessFigures> process, std::uint64_t start_ticks) {
  auto const scene = make_scene(model, std::move(path), std::move(process), start_ticks);
  Prose prose;
  explain_who(scene, prose);
  explain_operations(scene, prose);
  explain_failure(scene, prose);
  prose.new_paragraph();
  explain_attempts(scene, prose);
  prose.new_paragraph();
  explain_surroundings(scene, prose);
  prose.new_paragraph();
  explain_remedies(scene, prose);
  prose.print(std::cout, prose_width());
}

/// Of the oldest record that the model has; annotations, which may span it, are none. 0: there is none.
[[nodiscard]] std::uint64_t first_record_ticks(follow::Model const& model) {
  constexpr auto kEver = std::numeric_limits<std::uint64_t>::max();
  auto first = kEver;
  for (auto const& ledger : model.ledgers()) {
    model.for_each_operation(ledger.cell, 0, kEver, [&](follow::Operation const& operation) {
      first = std::min(first, operation.ticks);
      return false;
    });
  }
  model.for_each_journal_event(0, kEver, [&](flight::Event const& event) {
    if (event.kind != flight::EventKind::mark) first = std::min(first, event.ticks);
  });
  return first == kEver ? 0 : first;
}

ExitCode run_explain(ExplainArguments const& arguments) {
  auto const path =
      arguments.file == "-" ? Result<std::string>{arguments.file} : file_of(arguments.file, folders_or_default(arguments.folder));
  if (!path) return complain_about(kWho, path.error(), ExitCode::broken_input);
  auto source = Source::open(*path);
  if (!source) return complain_about(kWho, source.error(), ExitCode::broken_input);
  auto records = source->records();
  if (!records) return complain_about(kWho, records.error(), ExitCode::broken_input);
  follow::Model model{std::move(*records)};
  // A history's clock may begin at midnight, or in 1970: it counts from its first record, while the model still has that one.
  auto const is_history = model.source().kind() == follow::SourceKind::history;
  std::uint64_t start_ticks = 0;
  if (is_history) {
    if (auto const read = model.poll(); !read) return complain_about(kWho, read.error(), ExitCode::broken_input);
    start_ticks = first_record_ticks(model);
  }
  if (auto const read = model.catch_up(); !read) return complain_about(kWho, read.error(), ExitCode::broken_input);
  // Of several devices a later one may have begun earlier.
  if (start_ticks != 0) start_ticks = std::min(start_ticks, first_record_ticks(model));
  print(model, model.source().title(), is_history ? std::nullopt : std::optional{process_figures(model.source())}, start_ticks);
  return ExitCode::good;
}

}  // namespace

Subcommand add_explain(CLI::App& app) {
  auto const arguments = std::make_shared<ExplainArguments>();
  auto* const explain = app.add_subcommand("explain", "What happened, who held it, who said no, and what to try, in plain words");
  explain
      ->add_option(
          "file", arguments->file,
          "A flight file of a living or dead process, a process number, a post-mortem, or a recorded history (- is standard\n"
          "input)")
      ->required()
      ->type_name("FILE|PID");
  explain->add_option("--dir", arguments->folder, "Where a process number is looked for (default: where headroom ps looks)")
      ->type_name("DIR");
  explain->footer(
      "It tells the last request that failed for good, or the last that nearly did, and what it knows around it.\n"
      "\n"
      "Examples:\n"
      "  headroom explain 4711\n"
      "  headroom explain /dev/shm/headroom-1000/train.4711.0123456789abcdef.flight\n"
      "  headroom explain train.4711.0123456789abcdef.0.post-mortem.json\n"
      "  headroom explain oom_batch.csv.xz\n"
      "\n"
      "Exit status: 0 it could be explained, whatever happened; 2 wrong usage; 3 there is no such process, or the file cannot be "
      "read.\n");
  return {.app = explain, .run = [arguments] { return run_explain(*arguments); }};
}

}  // namespace headroom::command
