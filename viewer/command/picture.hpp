// headroom: the last frame as a PNG.
#pragma once

#include <string>

#include <headroom/error.hpp>

namespace headroom::viewer {

/// Draws ImGui's last frame once more, off the screen, so that no other window and no edge of the screen cuts it. Needs a current OpenGL
/// context. Errors: io (too large for the driver, or the file cannot be written).
[[nodiscard]] Result<void> write_frame_as_png(std::string const& path, int width, int height);

}  // namespace headroom::viewer
