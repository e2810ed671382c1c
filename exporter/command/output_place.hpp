// headroom: what the name of an output stands for.
#pragma once

#include <optional>
#include <string>

namespace headroom::command {

struct OutputPlace {
  std::string path;                    ///< all links of its last part followed, to a name at which nothing may be yet
  std::optional<int> descriptor = {};  ///< the name is one of this process's open descriptors, as /dev/stdout is
  bool is_of_proc = false;             ///< a link of /proc that only the kernel can follow, such as another process's descriptor
};

[[nodiscard]] OutputPlace output_place(std::string const& name);

}  // namespace headroom::command
