#include "settings.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <nlohmann/json.hpp>

#include <unistd.h>

namespace headroom::viewer {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 10U;
constexpr int kMostPixels = 1 << 16;

std::optional<WindowSize> pair_of(nlohmann::json const& from, char const* key) {
  auto const found = from.find(key);
  if (found == from.end() || !found->is_array() || found->size() != 2) return std::nullopt;
  auto const& first = (*found)[0];
  auto const& second = (*found)[1];
  if (!first.is_number_integer() || !second.is_number_integer()) return std::nullopt;
  auto const bounded = [](nlohmann::json const& number) {
    return static_cast<int>(std::clamp<std::int64_t>(number.get<std::int64_t>(), -kMostPixels, kMostPixels));
  };
  return WindowSize{.width = bounded(first), .height = bounded(second)};
}

}  // namespace

std::string settings_path() {
  // Read before any thread is started.
  if (auto const* const config = std::getenv("XDG_CONFIG_HOME");
      config != nullptr && *config == '/') {  // NOLINT(concurrency-mt-unsafe)
    return std::string{config} + "/headroom/viewer.json";
  }
  if (auto const* const home = std::getenv("HOME"); home != nullptr && *home == '/') {  // NOLINT(concurrency-mt-unsafe)
    return std::string{home} + "/.config/headroom/viewer.json";
  }
  return {};
}

Settings read_settings(std::string const& path) {
  Settings settings;
  std::ifstream file{path, std::ios::binary};
  if (path.empty() || !file) return settings;
  std::string text(kMostBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  auto const json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return settings;
  if (auto const theme = json.find("theme"); theme != json.end() && *theme == "light") settings.theme = ThemeName::light;
  if (auto const scale = json.find("scale"); scale != json.end() && scale->is_number()) {
    auto const number = scale->get<double>();
    if (std::isfinite(number)) settings.scale = static_cast<float>(std::clamp(number, 0.5, 4.0));
  }
  if (auto const filter = json.find("filter"); filter != json.end() && filter->is_string())
    settings.filter = filter->get<std::string>();
  settings.size = pair_of(json, "size");
  if (settings.size && !settings.size->is_possible()) settings.size.reset();
  settings.place = pair_of(json, "place");
  return settings;
}

void write_settings(std::string const& path, Settings const& settings) {
  if (path.empty()) return;
  nlohmann::ordered_json json;
  json["theme"] = settings.theme == ThemeName::light ? "light" : "dark";
  json["scale"] = settings.scale;
  json["filter"] = settings.filter;
  if (settings.size) json["size"] = {settings.size->width, settings.size->height};
  if (settings.place) json["place"] = {settings.place->width, settings.place->height};
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path{path}.parent_path(), failed);
  auto const written = path + "." + std::to_string(::getpid());
  {
    std::ofstream file{written, std::ios::binary | std::ios::trunc};
    file << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
    if (!file.flush()) {
      std::filesystem::remove(written, failed);
      return;
    }
  }
  std::filesystem::rename(written, path, failed);
  if (failed) std::filesystem::remove(written, failed);
}

}  // namespace headroom::viewer
