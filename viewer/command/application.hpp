// headroom: the viewer as a program: opens what was asked for, reads while it draws, and sleeps while nothing changes.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "commands.hpp"
#include "document.hpp"
#include "options.hpp"
#include "process_list.hpp"
#include "settings.hpp"
#include "shell.hpp"
#include "state.hpp"
#include "text_output.hpp"
#include "text_recorder.hpp"
#include "window.hpp"

namespace headroom::viewer {

class Application {
public:
  explicit Application(Options options);
  [[nodiscard]] ExitCode run();

private:
  using Clock = std::chrono::steady_clock;

  /// What a person typed: a path, or a process number.
  void open(std::string const& what);
  void open_path(std::string path);
  /// Opens what is to be compared with the file that is shown, and reads all of it.
  void open_other(std::string const& what);
  void read();
  void draw();
  void draw_message(Ui& ui);
  void draw_window(Ui& ui);
  void answer(Commands& commands);
  void remember() const;
  [[nodiscard]] ExitCode errand();
  [[nodiscard]] ExitCode write_last_frame();
  /// To those outputs that `is_wanted`.
  [[nodiscard]] Result<void> write_texts(bool (*is_wanted)(TextOutput const&));
  void until_closed();
  [[nodiscard]] std::chrono::milliseconds patience() const;

  Options options_;
  Settings settings_;
  std::unique_ptr<Window> window_;
  ViewState state_;
  Shell shell_;
  ProcessList processes_;
  std::unique_ptr<Document> document_;
  std::unique_ptr<Document> other_;  ///< what it is compared with
  std::string message_;              ///< what went wrong last; "" = nothing
  bool shows_processes_ = false;
  bool is_reading_ = false;  ///< there was more than fitted into the last turn
  bool quits_ = false;
  TagColours tags_;
  TextRecorder recorder_;
  TextOutput texts_, places_;
  Commands commands_;
  Clock::time_point drawn_{};
  Clock::time_point read_{};
  Clock::time_point news_{};  ///< when something was new last
};

}  // namespace headroom::viewer
