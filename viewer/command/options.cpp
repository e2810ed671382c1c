#include "options.hpp"

#include <array>
#include <charconv>
#include <string_view>

#include <CLI/CLI.hpp>

#include <headroom/byte_size.hpp>

#include "panels.hpp"

namespace headroom::viewer {
namespace {

/// "1280x800"; nothing if it is no size of a window.
std::optional<WindowSize> size_of(std::string_view text) {
  WindowSize size;
  auto const* const end = text.data() + text.size();
  auto const width = std::from_chars(text.data(), end, size.width);
  if (width.ec != std::errc{} || width.ptr == end || *width.ptr != 'x') return std::nullopt;
  auto const height = std::from_chars(width.ptr + 1, end, size.height);
  if (height.ec != std::errc{} || height.ptr != end) return std::nullopt;
  return size.is_possible() ? std::optional{size} : std::nullopt;
}

std::string names_of_panels() {
  std::string names;
  for (auto const& panel : make_panels()) {
    names.append(names.empty() ? "" : ", ").append(panel->info().name);
  }
  return names;
}

bool is_panel(std::string_view name) {
  for (auto const& panel : make_panels()) {
    if (panel->info().name == name) return true;
  }
  return false;
}

}  // namespace

std::variant<Options, int> read_options(int argc, char** argv) {
  Options options;
  std::string memory = "512MiB";
  std::string size;
  std::string theme;
  std::string at;
  CLI::App app{"Shows what a program holds in GPU memory, and held: a living process, one that died, a post-mortem, a history."};
  app.name("headroom-viewer");
  app.set_version_flag("--version", std::string{"headroom-viewer "} + HEADROOM_VERSION);
  app.add_option("WHAT", options.what,
                 "A process number, a flight file, a post-mortem or a recorded history (default: the newest process)");
  app.add_option("--compare", options.compare, "A process or file to compare it with, in the panel of that name");
  app.add_option("--dir", options.folder, "Folder of flight files, in place of the usual ones");
  app.add_option("--memory", memory, "Memory for the past that is kept; what is older is forgotten")->capture_default_str();
  app.add_option("--panel", options.panel, "The panel to show first, of: " + names_of_panels());
  app.add_option("--at", at, "The moment to look at first: peak, or failure (the last one); default: now, or the end")
      ->check(CLI::IsMember({"peak", "failure"}));
  app.add_option("--size", size, "Size of the window in pixels, such as 1280x800");
  app.add_option("--theme", theme, "dark or light")->check(CLI::IsMember({"dark", "light"}));
  app.add_option("--scale", options.scale, "Size of everything; 1 is the usual one")->check(CLI::Range(0.5, 4.0));
  app.add_option("--frames", options.frames, "Read what there is, draw so many frames, and quit")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--screenshot", options.screenshot, "Write a picture of the window to this PNG, and quit");
  app.add_option("--dump-text", options.dump_text, "Write every text of the window to this file, and quit; - is standard output");
  app.add_option("--dump-places", options.dump_places,
                 "Write where each of them stands: panel, x, y, width and height in pixels, text, with tabs between them");
  app.add_flag("--stay", options.stays,
               "Stay open; texts are written again whenever they change, --screenshot when the window is closed")
      ->excludes("--frames");
  app.add_flag_callback(
      "--forget", [&] { options.remembers = false; }, "Neither read nor write the settings that are remembered");
  app.footer(
      "Examples:\n"
      "  headroom-viewer                                     the newest process of this machine\n"
      "  headroom-viewer 4711                                a process by its number, also after it died\n"
      "  headroom-viewer tests/data/resnet.csv.xz            a recorded history\n"
      "  headroom-viewer 4711 --screenshot now.png           a picture, without anybody looking\n"
      "Exit status: 0 good, 2 a wrong argument, 3 something cannot be opened or there is no display.");
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& error) {
    auto const code = app.exit(error);
    return code == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  auto const refuse = [](std::string const& what) {
    std::cerr << "headroom-viewer: " << what << '\n';
    return static_cast<int>(ExitCode::usage);
  };
  auto const bytes = parse_byte_size(memory);
  if (!bytes || *bytes == 0) return refuse("--memory: found '" + memory + "', expected a size such as 512MiB");
  options.memory_bytes = static_cast<std::size_t>(*bytes);
  if (!size.empty()) {
    options.size = size_of(size);
    if (!options.size) return refuse("--size: found '" + size + "', expected such as 1280x800, from 64 to 16384 pixels");
  }
  if (!options.panel.empty() && !is_panel(options.panel)) {
    return refuse("--panel: found '" + options.panel + "', expected one of " + names_of_panels());
  }
  if (!at.empty()) options.at = at == "peak" ? Command::peak : Command::previous_failure;
  if (!theme.empty()) options.theme = theme == "light" ? ThemeName::light : ThemeName::dark;
  return options;
}

}  // namespace headroom::viewer
