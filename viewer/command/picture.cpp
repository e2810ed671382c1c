#include "picture.hpp"

#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#define GL_GLEXT_PROTOTYPES 1  // NOLINT(readability-identifier-naming): the name that the header looks for
#include <GL/gl.h>
#include <GL/glext.h>
#include <imgui.h>
#include <stb/stb_image_write.h>

#include <backends/imgui_impl_opengl3.h>

namespace headroom::viewer {
namespace {

/// A place to draw into that is as large as asked, whatever the window's is.
class OffScreen {
public:
  OffScreen(int width, int height) {
    glGenFramebuffers(1, &frame_);
    glGenRenderbuffers(1, &colour_);
    glBindFramebuffer(GL_FRAMEBUFFER, frame_);
    glBindRenderbuffer(GL_RENDERBUFFER, colour_);
    glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, width, height);
    glFramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, colour_);
  }
  OffScreen(OffScreen const&) = delete;
  OffScreen& operator=(OffScreen const&) = delete;
  ~OffScreen() {
    glBindFramebuffer(GL_FRAMEBUFFER, 0);
    glDeleteRenderbuffers(1, &colour_);
    glDeleteFramebuffers(1, &frame_);
  }
  [[nodiscard]] static bool is_usable() { return glCheckFramebufferStatus(GL_FRAMEBUFFER) == GL_FRAMEBUFFER_COMPLETE; }

private:
  GLuint frame_ = 0;
  GLuint colour_ = 0;
};

}  // namespace

Result<void> write_frame_as_png(std::string const& path, int width, int height) {
  OffScreen const place{width, height};
  if (ImGui::GetDrawData() == nullptr) return fail(ErrorKind::io, Layer::request, path + ": nothing was drawn yet");
  if (width <= 0 || height <= 0 || !OffScreen::is_usable()) {
    return fail(ErrorKind::io, Layer::request,
                path + ": no picture of " + std::to_string(width) + "x" + std::to_string(height) + " pixels can be drawn here");
  }
  glViewport(0, 0, width, height);
  auto const ground = ImGui::GetStyle().Colors[ImGuiCol_WindowBg];
  glClearColor(ground.x, ground.y, ground.z, 1);
  glClear(GL_COLOR_BUFFER_BIT);
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  glFinish();
  auto const row = static_cast<std::size_t>(width) * 3;
  std::vector<unsigned char> pixels(row * static_cast<std::size_t>(height));
  glPixelStorei(GL_PACK_ALIGNMENT, 1);
  glReadPixels(0, 0, width, height, GL_RGB, GL_UNSIGNED_BYTE, pixels.data());
  // OpenGL counts rows from the bottom.
  std::vector<unsigned char> upright(pixels.size());
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
    std::memcpy(upright.data() + y * row, pixels.data() + (static_cast<std::size_t>(height) - 1 - y) * row, row);
  }
  if (stbi_write_png(path.c_str(), width, height, 3, upright.data(), static_cast<int>(row)) == 0) {
    return fail(ErrorKind::io, Layer::request, path + ": the picture cannot be written");
  }
  return {};
}

}  // namespace headroom::viewer
