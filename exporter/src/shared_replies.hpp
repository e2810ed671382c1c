// headroom: answers that are made once for all who ask at the same time.
//
// The metrics of many processes take a second and megabytes. Whoever asks while they are being made waits for the next ones, together
// with all others who want the same: each gets figures that are younger than its request, and a crowd costs one text at a time. What
// is on its way is bounded (shared_body.hpp).
//
// Thread safety: every member from any thread. One answer is made at a time, in the order of asking; no other lock is held meanwhile.
#pragma once

#include <cstddef>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "fair_mutex.hpp"
#include "http.hpp"
#include "metrics_text.hpp"
#include "shared_body.hpp"

namespace headroom::exporter {

class SharedReplies {
public:
  explicit SharedReplies(BodyRoom::Limits limits) : room_(std::make_shared<BodyRoom>(limits)) {}

  /// What `make` answers to this request, or to one that waited with it and wants the same format and packing; packed as it wants, and
  /// as Reply::shared. 503 when there was no room for too long. Throws what `make` throws.
  [[nodiscard]] Reply get(Request const& request, Route const& make);

  [[nodiscard]] std::size_t bytes() const { return room_->bytes(); }  ///< of all answers that somebody has
  [[nodiscard]] std::size_t asking() const;                           ///< how many are in get()

private:
  class Leaving;
  using Kind = std::pair<MetricsFormat, bool>;  // and whether it is packed
  [[nodiscard]] std::size_t expected_size(Kind kind) const;
  [[nodiscard]] Reply made(Request const& request, Route const& make, Kind kind);

  std::shared_ptr<BodyRoom> room_;
  FairMutex turn_;                                     // held by whoever makes an answer or waits for room for it; guards sizes_
  std::map<Kind, std::size_t> sizes_;                  // of the last one of each kind
  mutable std::mutex mutex_;                           // guards what follows; never held over anything slow
  std::map<Kind, std::shared_future<Reply>> awaited_;  // what is not being made yet: whoever asks now may have it
  std::size_t asking_ = 0;
};

/// `make` behind a SharedReplies of its own. It must answer with Reply::body.
[[nodiscard]] Route shared_route(Route make);

}  // namespace headroom::exporter
