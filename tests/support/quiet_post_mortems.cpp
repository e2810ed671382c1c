// Tests make requests fail for good all day: none of them leaves a post-mortem in the user's folder. Those that want one say so before
// the first manager of their process is made.
#include <cstdlib>

namespace {

[[maybe_unused]] const bool quiet = [] { return setenv("HEADROOM_DUMP", "off", 0) == 0; }();

}  // namespace
