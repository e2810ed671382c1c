// headroom explain: what happened, in plain sentences, for whoever is woken at three in the morning.
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "command/explanation.hpp"
#include "command/find_process.hpp"
#include "command/output.hpp"
#include "command/subcommand.hpp"
#include "command/summary_sources.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom explain";

struct ExplainArguments {
  std::string file;
  std::optional<std::string> folder;
};

ExitCode broken(Error const& error) {
  complain(kWho, error.message.empty() ? error.to_string() : error.message);
  return ExitCode::broken_input;
}

void print(follow::Model const& model, std::string path, std::optional<ProcessFigures> process) {
  auto const scene = make_scene(model, std::move(path), std::move(process));
  Prose prose;
  explain_who(scene, prose);
  if (scene.living()) explain_operations(scene, prose);  // a hang is what matters while it lasts
  explain_failure(scene, prose);
  prose.new_paragraph();
  explain_attempts(scene, prose);
  prose.new_paragraph();
  explain_surroundings(scene, prose);
  prose.new_paragraph();
  explain_remedies(scene, prose);
  prose.print(std::cout, prose_width());
}

ExitCode run_explain(ExplainArguments const& arguments) {
  auto const is_input = arguments.file == "-";
  auto const path =
      is_input ? Result<std::string>{arguments.file} : file_of(arguments.file, folders_or_default(arguments.folder));
  if (!path) return broken(path.error());
  if (is_input || !looks_like_flight(*path)) {
    auto model = follow::Model::open_history(*path);
    if (!model) return broken(model.error());
    if (auto const read = model->catch_up(); !read) return broken(read.error());
    print(*model, model->source().title(), std::nullopt);
    return ExitCode::good;
  }
  auto view = flight::FlightView::open(*path);
  if (!view) return broken(view.error());
  follow::Model model{follow::flight_source(*view)};
  if (auto const read = model.catch_up(); !read) return broken(read.error());
  print(model, *path, process_figures(*view));
  return ExitCode::good;
}

}  // namespace

Subcommand add_explain(CLI::App& app) {
  auto const arguments = std::make_shared<ExplainArguments>();
  auto* const explain = app.add_subcommand("explain", "What happened, who held it, who said no, and what to try, in plain words");
  explain
      ->add_option("file", arguments->file,
                   "A flight file of a living or dead process, a process number, or a recorded history (- is standard input)")
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
      "  headroom explain oom_batch.csv.xz\n"
      "\n"
      "Exit status: 0 it could be explained, whatever happened; 2 wrong usage; 3 there is no such process, or the file cannot be "
      "read.\n");
  return {.app = explain, .run = [arguments] { return run_explain(*arguments); }};
}

}  // namespace headroom::command
