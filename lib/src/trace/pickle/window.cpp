#include "trace/pickle/window.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace headroom::trace::pickle {

bool Window::fill(std::size_t count) {
  auto used = available();
  if (count > capacity_) {
    auto const capacity = count + kReadBytes;
    auto larger = std::make_unique_for_overwrite<char[]>(capacity);
    std::memcpy(larger.get(), next_, used);
    buffer_ = std::move(larger);
    capacity_ = capacity;
  } else {
    std::memmove(buffer_.get(), next_, used);
  }
  next_ = buffer_.get();
  while (used < count && !over_ && !error_) {
    auto const room = std::min(capacity_ - used, kReadBytes);
    auto const got = source_->read({next_ + used, room});
    if (!got) {
      error_ = got.error();
      break;
    }
    over_ = *got == 0;
    used += *got;
    read_ += *got;
  }
  filled_ = next_ + used;
  return used >= count;
}

}  // namespace headroom::trace::pickle
