#include "window.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <GLFW/glfw3.h>
#include <imgui.h>

#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>

#include "fonts.hpp"
#include "keys.hpp"
#include "picture.hpp"
#include "window_place.hpp"

namespace headroom::viewer {
namespace {

tl::unexpected<Error> no_window() {
  char const* said = nullptr;
  static_cast<void>(glfwGetError(&said));
  return fail(ErrorKind::io, Layer::request,
              std::string{"no window could be opened: "} + (said != nullptr ? said : "the system does not say why"));
}

constexpr int kUsualTextureEdge = 8'192;  // where the driver does not tell

/// Where windows may be, on each monitor.
std::vector<ScreenArea> work_areas() {
  int count = 0;
  GLFWmonitor** const monitors = glfwGetMonitors(&count);
  std::vector<ScreenArea> areas(static_cast<std::size_t>(std::max(count, 0)));
  for (std::size_t i = 0; i < areas.size(); ++i) {
    glfwGetMonitorWorkarea(monitors[i], &areas[i].x, &areas[i].y, &areas[i].width, &areas[i].height);
  }
  return areas;
}

}  // namespace

Window* Window::of(GLFWwindow* window) { return static_cast<Window*>(glfwGetWindowUserPointer(window)); }

Result<std::unique_ptr<Window>> Window::open(WindowSize size, std::optional<WindowSize> place) {
  std::unique_ptr<Window> made{new Window};
  if (glfwInit() != GLFW_TRUE) return no_window();
  glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
  glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
  glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
  glfwWindowHint(GLFW_OPENGL_FORWARD_COMPAT, GLFW_TRUE);
  glfwWindowHint(GLFW_VISIBLE, GLFW_FALSE);
  glfwWindowHintString(GLFW_X11_CLASS_NAME, "headroom-viewer");
  made->window_ = glfwCreateWindow(size.width, size.height, "headroom", nullptr, nullptr);
  if (made->window_ == nullptr) {  // a size that was remembered of another desktop may be too much for this one
    size = {};
    made->window_ = glfwCreateWindow(size.width, size.height, "headroom", nullptr, nullptr);
  }
  if (made->window_ == nullptr) return no_window();
  if (place && is_in_sight({.x = place->width, .y = place->height, .width = size.width, .height = size.height}, work_areas())) {
    glfwSetWindowPos(made->window_, place->width, place->height);
  }
  glfwShowWindow(made->window_);
  glfwMakeContextCurrent(made->window_);
  glfwSwapInterval(1);
  glfwSetWindowUserPointer(made->window_, made.get());
  made->take_callbacks();  // before ImGui's, which calls those that it finds

  ImGui::CreateContext();
  made->has_imgui_ = true;
  auto& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  io.LogFilename = nullptr;
  if (!ImGui_ImplGlfw_InitForOpenGL(made->window_, true)) return no_window();
  if (!ImGui_ImplOpenGL3_Init("#version 330 core")) return no_window();
  made->has_backends_ = true;
  return made;
}

Window::~Window() {
  if (has_backends_) {
    ImGui_ImplOpenGL3_Shutdown();
    ImGui_ImplGlfw_Shutdown();
  }
  if (has_imgui_) ImGui::DestroyContext();
  if (window_ != nullptr) glfwDestroyWindow(window_);
  glfwTerminate();
}

void Window::take_callbacks() {
  glfwSetKeyCallback(window_, [](GLFWwindow* window, int key, int /*code*/, int action, int modifiers) {
    auto& self = *of(window);
    self.something_came_ = true;
    if (action == GLFW_RELEASE) return;
    if (auto const command = command_of(key, modifiers, ImGui::GetIO().WantTextInput)) self.commands_.give(*command);
  });
  glfwSetCharCallback(window_, [](GLFWwindow* window, unsigned letter) {
    auto& self = *of(window);
    self.something_came_ = true;
    if (auto const command = command_of_letter(letter, ImGui::GetIO().WantTextInput)) self.commands_.give(*command);
  });
  glfwSetCursorPosCallback(window_, [](GLFWwindow* window, double, double) { of(window)->something_came_ = true; });
  glfwSetCursorEnterCallback(window_, [](GLFWwindow* window, int) { of(window)->something_came_ = true; });
  glfwSetMouseButtonCallback(window_, [](GLFWwindow* window, int, int, int) { of(window)->something_came_ = true; });
  glfwSetScrollCallback(window_, [](GLFWwindow* window, double, double) { of(window)->something_came_ = true; });
  glfwSetWindowFocusCallback(window_, [](GLFWwindow* window, int) { of(window)->something_came_ = true; });
  glfwSetFramebufferSizeCallback(window_, [](GLFWwindow* window, int, int) { of(window)->something_came_ = true; });
  glfwSetWindowRefreshCallback(window_, [](GLFWwindow* window) { of(window)->something_came_ = true; });
  glfwSetDropCallback(window_, [](GLFWwindow* window, int count, char const** paths) {
    auto& self = *of(window);
    self.something_came_ = true;
    for (auto const* const path : std::span{paths, static_cast<std::size_t>(count)}) self.dropped_.emplace_back(path);
  });
}

bool Window::wait(std::chrono::milliseconds most) {
  if (most.count() > 0) {
    glfwWaitEventsTimeout(static_cast<double>(most.count()) / 1000);
  } else {
    glfwPollEvents();
  }
  return std::exchange(something_came_, false);
}

bool Window::wants_to_close() const { return glfwWindowShouldClose(window_) == GLFW_TRUE; }

void Window::set_title(std::string const& title) { glfwSetWindowTitle(window_, title.c_str()); }

Commands Window::take_commands() { return std::exchange(commands_, {}); }

std::vector<std::string> Window::take_dropped() { return std::exchange(dropped_, {}); }

void Window::begin_frame(ThemeName theme, float scale) {
  float display = 1;
  glfwGetWindowContentScale(window_, &display, nullptr);
  auto const wanted = scale * (std::isfinite(display) && display > 0 ? display : 1);
  if (std::abs(wanted - fonts_scale_) > 0.001F) {
    GLint most = 0;
    glGetIntegerv(GL_MAX_TEXTURE_SIZE, &most);
    fonts_ = load_fonts(*ImGui::GetIO().Fonts, wanted, most > 0 ? most : kUsualTextureEdge);
    ImGui_ImplOpenGL3_DestroyFontsTexture();
    fonts_scale_ = wanted;
    style_theme_.reset();
  }
  if (style_theme_ != theme) {
    apply_style(ImGui::GetStyle(), theme, fonts_.scale);
    style_theme_ = theme;
  }
  ImGui_ImplOpenGL3_NewFrame();
  if (ImGui::GetIO().Fonts->TexID == ImTextureID{}) ImGui_ImplOpenGL3_CreateFontsTexture();
  ImGui_ImplGlfw_NewFrame();
  ImGui::NewFrame();
}

void Window::end_frame() {
  ImGui::Render();
  int width = 0;
  int height = 0;
  glfwGetFramebufferSize(window_, &width, &height);
  glViewport(0, 0, width, height);
  auto const ground = ImGui::GetStyle().Colors[ImGuiCol_WindowBg];
  glClearColor(ground.x, ground.y, ground.z, 1);
  glClear(GL_COLOR_BUFFER_BIT);
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  glfwSwapBuffers(window_);
}

Result<void> Window::write_picture(std::string const& path) const {
  int width = 0;
  int height = 0;
  glfwGetFramebufferSize(window_, &width, &height);
  return write_frame_as_png(path, width, height);
}

WindowSize Window::size() const {
  WindowSize size;
  glfwGetWindowSize(window_, &size.width, &size.height);
  return size;
}

WindowSize Window::place() const {
  WindowSize place;
  glfwGetWindowPos(window_, &place.width, &place.height);
  return place;
}

}  // namespace headroom::viewer
