#include "application.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <utility>

#include <imgui.h>

#include "command/find_process.hpp"
#include "command/stop_signals.hpp"

namespace headroom::viewer {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kEveryRead{100};  // of a living process: what is new is on the screen after that at the latest
constexpr milliseconds kEveryIdle{250};  // … of one in which nothing has happened for kIdleAfter
constexpr milliseconds kIdleAfter{2'000};
constexpr milliseconds kEveryClock{1'000};  // how often the picture of a living process moves on though nothing happens in it
constexpr milliseconds kEveryLook{1'000};   // at what does not change by itself
constexpr milliseconds kWhileStale{50};     // what a frame left to the next one
constexpr milliseconds kReadFor{25};        // in one turn, so that the window answers meanwhile
constexpr int kSettling = 3;                // frames after input, until ImGui has laid out what it changed
constexpr float kScaleStep = 1.1F;

void complain(std::string const& what) { std::cerr << "headroom-viewer: " << what << '\n'; }

}  // namespace

Application::Application(Options options)
    : options_{std::move(options)},
      settings_{options_.remembers ? read_settings(settings_path()) : Settings{}},
      processes_{options_.folder},
      texts_{options_.dump_text},
      places_{options_.dump_places} {
  state_.theme = options_.theme.value_or(settings_.theme);
  state_.scale = options_.scale.value_or(settings_.scale);
  state_.filter.text = settings_.filter;
  state_.asked_panel = options_.panel;
}

ExitCode Application::run() {
  // What was named on the command line must be there before a window is opened for it.
  if (!options_.what.empty()) {
    open(options_.what);
    if (!document_) {
      complain(message_);
      return ExitCode::broken_input;
    }
  } else if (auto const newest = newest_flight(options_.folder); newest && !newest->empty()) {
    open_path(*newest);
  } else if (!newest) {
    message_ = newest.error().to_string();
  }
  auto const size = options_.size.value_or(settings_.size.value_or(WindowSize{}));
  auto window = Window::open(size, options_.size ? std::nullopt : settings_.place);
  if (!window) {
    complain(window.error().to_string());
    return ExitCode::broken_input;
  }
  window_ = std::move(*window);
  command::catch_stop_signals();
  if (options_.is_errand()) return errand();
  if (!options_.compare.empty()) open_other(options_.compare);
  until_closed();
  remember();
  return write_last_frame();
}

void Application::open(std::string const& what) {
  auto const path = command::file_of(what, command::folders_or_default(options_.folder));
  if (!path) {
    message_ = path.error().to_string();
    return state_.touch();
  }
  open_path(*path);
}

void Application::open_path(std::string path) {
  auto opened = Document::open(std::move(path), options_.memory_bytes);
  state_.touch();
  if (!opened) {
    message_ = opened.error().to_string();
    return;
  }
  message_ = (*opened)->warning();
  shows_processes_ = false;
  state_.show(nullptr);
  shell_.forget();
  document_ = std::move(*opened);
  is_reading_ = true;
  state_.open_again = [this] { return document_->open_again(); };
  read();
  state_.show(&document_->model());
}

void Application::open_other(std::string const& what) {
  state_.touch();
  auto const path = command::file_of(what, command::folders_or_default(options_.folder));
  auto opened = path ? Document::open(*path, options_.memory_bytes) : tl::unexpected{path.error()};
  auto const done = opened ? (*opened)->read_all() : tl::unexpected{opened.error()};
  if (!done) {
    message_ = done.error().to_string();
    return;
  }
  if (!(*opened)->warning().empty()) message_ = (*opened)->warning();
  state_.other = nullptr;
  other_ = std::move(*opened);
  state_.other = &other_->model();
  ++state_.revision;
}

void Application::read() {
  if (!document_) return;
  read_ = Clock::now();
  auto const progress = document_->read(kReadFor);
  if (!progress) {
    message_ = progress.error().to_string();
    is_reading_ = false;
    state_.touch();
    // What was read of a file that changed under the reader may be wrong, down to the last figure.
    if (document_->model().source().kind() == follow::SourceKind::flight) {
      state_.show(nullptr);
      shell_.forget();
      document_.reset();
    }
    return;
  }
  is_reading_ = *progress == Document::Progress::more;
  if (*progress != Document::Progress::nothing) news_ = read_;
  if (state_.model != nullptr) state_.follow(*progress != Document::Progress::nothing);
}

milliseconds Application::patience() const {
  if (is_reading_) return milliseconds{0};
  if (!document_ || document_->is_over()) return kEveryLook;
  return Clock::now() - news_ < kIdleAfter ? kEveryRead : kEveryIdle;
}

void Application::until_closed() {
  auto frames = kSettling;
  while (!quits_ && !window_->wants_to_close() && !command::stop_flag().load(std::memory_order_relaxed)) {
    auto const came = window_->wait(frames > 0        ? milliseconds{0}
                                    : state_.is_stale ? std::min(kWhileStale, patience())
                                                      : patience());
    if (came) frames = kSettling;
    auto const dropped = window_->take_dropped();
    if (!dropped.empty()) open(dropped.front());
    auto const now = Clock::now();
    if (is_reading_ || now - read_ >= patience()) {
      auto const before = state_.revision;
      auto const was_stale = state_.is_stale;
      auto const was_reading = is_reading_;
      auto const message = message_;
      read();
      // The clock alone moves a picture seldom: an idle process shall not keep a core busy.
      auto const is_only_clock = state_.revision == before && is_reading_ == was_reading && message_ == message;
      if (!was_stale && is_only_clock && now - drawn_ < kEveryClock) state_.is_stale = false;
      if (is_reading_ != was_reading) state_.touch();
    }
    if (shows_processes_ && now - drawn_ >= kEveryLook) state_.touch();
    if (!document_ && now - drawn_ >= kEveryLook) state_.touch();
    if (frames == 0 && !state_.is_stale) continue;
    frames = std::max(frames - 1, 0);
    draw();
    window_->end_frame();
    // Whoever drives the window waits for what it shows; a failure is told by the last one, which comes at the end.
    static_cast<void>(write_texts([](TextOutput const& output) { return output.is_file(); }));
  }
}

ExitCode Application::errand() {
  // Wherever the pointer happens to be, nobody points at anything.
  ImGui::GetIO().ConfigFlags |= ImGuiConfigFlags_NoMouse;
  if (document_) {
    if (auto const done = document_->read_all(); !done) {
      complain(done.error().to_string());
      return ExitCode::broken_input;
    }
    is_reading_ = false;
    state_.show(&document_->model());
  }
  if (!options_.compare.empty()) open_other(options_.compare);
  auto const count = options_.frames.value_or(kSettling + 2);
  for (std::uint64_t frame = 0; frame < count && !command::stop_flag().load(std::memory_order_relaxed); ++frame) {
    static_cast<void>(window_->wait(milliseconds{0}));
    if (frame != 0 && Clock::now() - read_ >= kEveryRead) read();
    draw();
    window_->end_frame();
  }
  return write_last_frame();
}

ExitCode Application::write_last_frame() {
  if (!options_.screenshot.empty()) {
    if (auto const written = window_->write_picture(options_.screenshot); !written) {
      complain(written.error().to_string());
      return ExitCode::broken_input;
    }
  }
  if (auto const written = write_texts([](TextOutput const&) { return true; }); !written) {
    complain(written.error().to_string());
    return ExitCode::broken_input;
  }
  return ExitCode::good;
}

Result<void> Application::write_texts(bool (*is_wanted)(TextOutput const&)) {
  if (is_wanted(texts_)) {
    if (auto written = texts_.write(recorder_.text()); !written) return written;
  }
  return is_wanted(places_) ? places_.write(recorder_.places()) : success();
}

void Application::draw() {
  commands_ = window_->take_commands();
  if (document_ && !is_reading_ && options_.at) commands_.give(*std::exchange(options_.at, std::nullopt));
  answer(commands_);
  state_.is_stale = false;
  drawn_ = Clock::now();
  window_->begin_frame(state_.theme, state_.scale);
  recorder_.begin_frame();
  Ui ui{state_.theme, window_->fonts(), tags_, commands_, &recorder_};
  auto const& io = ImGui::GetIO();
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(io.DisplaySize);
  ImGui::PushFont(window_->fonts().body);
  ImGui::Begin("##viewer", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   ImGuiWindowFlags_NoBringToFrontOnFocus | ImGuiWindowFlags_NoScrollWithMouse);
  draw_message(ui);
  draw_window(ui);
  ImGui::End();
  ImGui::PopFont();
}

void Application::draw_message(Ui& ui) {
  ui.section("message");
  if (!message_.empty()) {
    if (ui.small_button("Close")) message_.clear();
    Ui::same_line();
    ui.wrapped(message_, ui.colours().bad);
  }
  auto const share = document_ ? document_->share_read() : std::nullopt;
  if (is_reading_ && share) {
    ui.soft("reading");
    Ui::same_line();
    ui.share_bar(*share, ui.colours().accent);
  }
}

void Application::draw_window(Ui& ui) {
  if (document_ && !shows_processes_) {
    shell_.draw(state_, ui);
    if (auto const asked = std::exchange(state_.asked_other, {}); !asked.empty()) open_other(asked);
    return;
  }
  if (auto const wanted = processes_.draw(ui)) open(*wanted);
}

void Application::answer(Commands& commands) {
  if (commands.take(Command::quit)) quits_ = true;
  if (commands.take(Command::open)) shows_processes_ = !shows_processes_ || !document_;
  if (shows_processes_ && document_ && commands.take(Command::clear)) shows_processes_ = false;
  auto const rescale = [&](float scale) { state_.scale = std::clamp(scale, 0.5F, 4.0F); };
  if (commands.take(Command::larger)) rescale(state_.scale * kScaleStep);
  if (commands.take(Command::smaller)) rescale(state_.scale / kScaleStep);
  if (commands.take(Command::usual_size)) rescale(1);
}

void Application::remember() const {
  if (!options_.remembers) return;
  write_settings(settings_path(), {.theme = state_.theme,
                                   .scale = state_.scale,
                                   .filter = state_.filter.text,
                                   .size = window_->size(),
                                   .place = window_->place()});
}

}  // namespace headroom::viewer
