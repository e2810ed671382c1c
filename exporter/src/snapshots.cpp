#include "snapshots.hpp"

#include <stdexcept>
#include <utility>

#include <headroom/post_mortem.hpp>

namespace headroom::exporter {

Reply Snapshots::give(flight::FlightView const& view, Request const& request,
                      std::function<bool(flight::FlightView const&)> const& is_whole) {
  if (count_->fetch_add(1, std::memory_order_relaxed) >= kMost) {
    count_->fetch_sub(1, std::memory_order_relaxed);
    auto reply = refusal(503, "503: as many snapshots as are made at a time are on their way to other clients");
    reply.headers.emplace_back("Retry-After", "5");
    return reply;
  }
  const std::shared_ptr<void> place{nullptr, [count = count_](void*) { count->fetch_sub(1, std::memory_order_relaxed); }};
  const auto events = request.query.find("events");
  const auto document = std::make_shared<Document>(place);
  if (auto written = write_post_mortem(view, document->descriptor(), "asked for over HTTP",
                                       {.events = events == request.query.end() || events->second != "0"});
      !written) {
    throw std::runtime_error{written.error().message};
  }
  if (is_whole && !is_whole(view)) {
    return refusal(503, "503: the flight file was truncated by somebody while it was read; there is nothing whole to send");
  }
  return {
      .content_type = "application/json",
      .headers = {{"Content-Disposition", "inline; filename=\"snapshot.json\""}, {"Cross-Origin-Resource-Policy", "same-origin"}},
      .document = document};
}

}  // namespace headroom::exporter
