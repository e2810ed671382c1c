#include "panels.hpp"

#include <utility>

namespace headroom::viewer {

// A line for each, in its own file.
std::unique_ptr<Panel> make_header_panel();
std::unique_ptr<Panel> make_timeline_panel();
std::unique_ptr<Panel> make_event_log_panel();
std::unique_ptr<Panel> make_live_panel();
std::unique_ptr<Panel> make_hook_panel();
std::unique_ptr<Panel> make_threads_panel();
std::unique_ptr<Panel> make_failure_panel();
std::unique_ptr<Panel> make_peak_panel();
std::unique_ptr<Panel> make_map_panel();
std::unique_ptr<Panel> make_compare_panel();
std::unique_ptr<Panel> make_export_panel();

std::vector<std::unique_ptr<Panel>> make_panels() {
  std::vector<std::unique_ptr<Panel>> panels;
  panels.push_back(make_header_panel());
  panels.push_back(make_timeline_panel());
  panels.push_back(make_event_log_panel());
  panels.push_back(make_live_panel());
  panels.push_back(make_hook_panel());
  panels.push_back(make_threads_panel());
  panels.push_back(make_failure_panel());
  panels.push_back(make_peak_panel());
  panels.push_back(make_map_panel());
  panels.push_back(make_compare_panel());
  panels.push_back(make_export_panel());
  return panels;
}

}  // namespace headroom::viewer
