#include "shared_replies.hpp"

#include <algorithm>
#include <exception>
#include <string>

#include "gzip.hpp"

namespace headroom::exporter {
namespace {

Reply no_room() {
  Reply reply{.body = "503: as many answers as there is room for are on their way to other clients\n", .status = 503};
  reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

}  // namespace

class SharedReplies::Leaving {
public:
  explicit Leaving(SharedReplies& replies) noexcept : replies_(replies) {}
  ~Leaving() {
    const std::lock_guard lock{replies_.mutex_};
    --replies_.asking_;
  }
  Leaving(Leaving const&) = delete;
  Leaving& operator=(Leaving const&) = delete;

private:
  SharedReplies& replies_;
};

Reply SharedReplies::get(Request const& request, Route const& make) {
  const Kind kind{wanted_format(request.accept), request.accepts_gzip};
  std::promise<Reply> promise;
  std::shared_future<Reply> answer;
  bool is_mine = false;
  {
    const std::lock_guard lock{mutex_};
    auto& awaited = awaited_[kind];
    is_mine = !awaited.valid();
    if (is_mine) awaited = promise.get_future().share();
    answer = awaited;
    ++asking_;
  }
  const Leaving leaving{*this};
  if (is_mine) {
    const std::lock_guard turn{turn_};
    bool has_room = false;
    std::exception_ptr problem;
    try {
      has_room = room_->wait_for(expected_size(kind));
    } catch (...) {
      problem = std::current_exception();
    }
    {
      const std::lock_guard lock{mutex_};
      awaited_.erase(kind);  // whoever asks from here on waits for the next one
    }
    try {
      if (problem) std::rethrow_exception(problem);
      promise.set_value(has_room ? made(request, make, kind) : no_room());
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }
  return answer.get();
}

/// That of the last one of its kind; before the first, the largest that there was of any.
std::size_t SharedReplies::expected_size(Kind kind) const {
  if (const auto known = sizes_.find(kind); known != sizes_.end()) return known->second;
  std::size_t largest = 0;
  for (auto const& [other, size] : sizes_) largest = std::max(largest, size);
  return largest;
}

Reply SharedReplies::made(Request const& request, Route const& make, Kind kind) {
  Reply reply = make(request);
  std::string bytes = std::exchange(reply.body, {});
  const bool is_packed = request.accepts_gzip && bytes.size() >= kWorthPacking;
  if (is_packed) bytes = gzipped(bytes);
  sizes_[kind] = bytes.size();
  reply.shared = room_->put(std::move(bytes), is_packed);
  return reply;
}

std::size_t SharedReplies::asking() const {
  const std::lock_guard lock{mutex_};
  return asking_;
}

Route shared_route(Route make) {
  const auto replies = std::make_shared<SharedReplies>(BodyRoom::Limits{});
  return [replies, make = std::move(make)](Request const& request) { return replies->get(request, make); };
}

}  // namespace headroom::exporter
