// A frame of the desktop viewer: what it costs the processor to work out and lay out what is on the screen. Nothing is rasterised.
//
// The target of a frame is 30 a second, that of the first one a second, both on a past of a million operations with 256 tags, in which
// 65,536 blocks are live.
#include <functional>
#include <memory>
#include <string>

#include <headroom/follow.hpp>

#include "made_past.hpp"
#include "null_frames.hpp"
#include "shell.hpp"
#include "thread_rows.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

using viewer::NullFrames;
using viewer::Panel;
using viewer::Shell;
using viewer::Ui;
using viewer::ViewState;

constexpr double kFrameNs = 1e9 / 30;
constexpr double kFirstFrameNs = 1e9;
constexpr double kMostBytes = 512.0 * 1024 * 1024;
constexpr float kWidth = 1'920;
constexpr float kHeight = 1'080;
constexpr MadePast::Size kSize{
    .operations = 1'000'000, .live = 65'536, .tags = 256, .sites = 1'024, .shortages = 1'000, .larger_tags = 0};

std::unique_ptr<follow::Model> read(MadePast::Size const& size) {
  auto const past = std::make_shared<MadePast const>(size);
  auto model = std::make_unique<follow::Model>(past->source(), follow::Options{.memory_bytes = std::size_t{256} << 20U});
  static_cast<void>(model->catch_up());
  return model;
}

follow::Model& shown() {
  static const auto model = read(kSize);
  return *model;
}

/// Its live blocks are larger in half of the tags.
follow::Model const& other() {
  static const auto model = [] {
    auto size = kSize;
    size.operations = 2 * kSize.live;
    size.larger_tags = size.tags / 2;
    return read(size);
  }();
  return *model;
}

/// As OpenGL takes them: more vertices than 16 bits can count.
class Display : public NullFrames {
public:
  Display() : NullFrames{kWidth, kHeight} { ImGui::GetIO().BackendFlags |= ImGuiBackendFlags_RendererHasVtxOffset; }
};

/// What the person does, or the program that is looked at, before each frame.
using Change = std::function<void(ViewState&)>;

void rest(ViewState& /*state*/) {}
void bring_news(ViewState& state) { ++state.revision; }
/// In to a thousandth of the past around a place, and out again.
void zoom(ViewState& state) {
  static int turn = 0;
  auto const around = state.whole().begin + state.whole().length() / 3;
  state.zoom(turn++ % 100 < 50 ? 1 / 1.15 : 1.15, around);
}
void pan(ViewState& state) {
  static int turn = 0;
  state.pan(turn++ % 20 < 10 ? -0.013 : 0.013);
}
void travel(ViewState& state) {
  static std::uint64_t turn = 0;
  auto const whole = state.whole();
  state.travel_to(whole.begin + whole.length() / 100 * (turn++ % 100));
}

void report(benchmark::State& state, double target_ns) {
  target(state, target_ns);
  state.counters["vertices"] = benchmark::Counter(NullFrames::vertices());
}

void frames_of_panel(benchmark::State& bench, std::string const& name, Change const& change) {
  Display frames;
  ViewState state;
  state.show(&shown());
  state.other = &other();
  auto panels = viewer::make_panels();
  auto const found = std::ranges::find(panels, name, [](auto const& panel) { return panel->info().name; });
  if (found == panels.end()) return bench.SkipWithError("there is no such panel");
  auto const draw = [&] { frames.frame(state.theme, [&](Ui& ui) { (*found)->draw(state, ui); }); };
  for (int i = 0; i < 5; ++i) draw();
  for (auto _ : bench) {
    change(state);
    draw();
  }
  report(bench, kFrameNs);
}

/// As in a window: strip, timeline, and the two tabs in front.
void frames_of_all(benchmark::State& bench, Change const& change) {
  Display frames;
  ViewState state;
  state.show(&shown());
  state.other = &other();
  Shell shell;
  auto const draw = [&] { frames.frame(state.theme, [&](Ui& ui) { shell.draw(state, ui); }); };
  for (int i = 0; i < 5; ++i) draw();
  for (auto _ : bench) {
    change(state);
    draw();
  }
  report(bench, kFrameNs);
}

void first_frame(benchmark::State& bench) {
  auto& model = shown();
  Display frames;
  for (auto _ : bench) {
    ViewState state;
    Shell shell;
    state.show(&model);
    frames.frame(state.theme, [&](Ui& ui) { shell.draw(state, ui); });
  }
  report(bench, kFirstFrameNs);
  bench.counters["past_bytes"] = benchmark::Counter(static_cast<double>(model.memory_bytes()));
}

/// A whole history, from its opening to the first frame that shows all of it.
void first_whole_frame(benchmark::State& bench) {
  static const auto past = std::make_shared<MadePast const>(kSize);
  Display frames;
  double resident = 0;  // of the whole process, what is read included: more than a viewer has
  for (auto _ : bench) {
    follow::Model model{past->source(), {.memory_bytes = std::size_t{256} << 20U}};
    static_cast<void>(model.catch_up());
    ViewState state;
    Shell shell;
    state.show(&model);
    frames.frame(state.theme, [&](Ui& ui) { shell.draw(state, ui); });
    resident = std::max(resident, static_cast<double>(viewer::own_memory_bytes()));
  }
  report(bench, kFirstFrameNs);
  bench.counters["resident_bytes"] = benchmark::Counter(resident);
  bench.counters["goal_resident_bytes"] = benchmark::Counter(kMostBytes);
}

[[maybe_unused]] bool const are_registered = [] {
  auto const add = [](std::string const& name, auto&& run) {
    benchmark::RegisterBenchmark(("viewer_" + name).c_str(), run)->Unit(benchmark::kMillisecond);
  };
  auto const panel = [&](std::string const& name, std::string const& when, Change const& change) {
    auto shown_name = name + "_" + when;
    std::ranges::replace(shown_name, '-', '_');
    add(shown_name, [name, change](benchmark::State& state) { frames_of_panel(state, name, change); });
  };
  for (auto const* const name :
       {"header", "timeline", "event-log", "live", "failure", "hooks", "peak", "map", "threads", "compare"}) {
    panel(name, "resting", rest);
    panel(name, "with_news", bring_news);
    panel(name, "travelling", travel);
  }
  panel("timeline", "zooming", zoom);
  panel("timeline", "panning", pan);
  add("all_panels_resting", [](benchmark::State& state) { frames_of_all(state, rest); });
  add("all_panels_with_news", [](benchmark::State& state) { frames_of_all(state, bring_news); });
  add("all_panels_zooming", [](benchmark::State& state) { frames_of_all(state, zoom); });
  add("all_panels_travelling", [](benchmark::State& state) { frames_of_all(state, travel); });
  add("first_frame", first_frame);
  add("first_whole_frame", first_whole_frame);
  return true;
}();

}  // namespace
}  // namespace headroom::bench
