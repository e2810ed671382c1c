#include "shared_body.hpp"

#include <algorithm>
#include <utility>

namespace headroom::exporter {

bool BodyRoom::wait_for(std::size_t bytes) {
  std::unique_lock lock{mutex_};
  const auto deadline = Clock::now() + limits_.patience;
  while (!has_room(bytes_, bytes)) {
    const auto now = Clock::now();
    const auto next = take_back(bytes, now);
    if (now >= deadline) return false;
    (void)freed_.wait_until(lock, std::min(next, deadline));
  }
  return true;
}

/// As many as it takes, of those that may be taken back. Says when the next one may be.
BodyRoom::Clock::time_point BodyRoom::take_back(std::size_t wanted, Clock::time_point now) {
  std::size_t staying = bytes_;
  for (auto const* body : bodies_) {
    if (body->is_taken_back_.load(std::memory_order_relaxed)) staying -= body->size_;
  }
  auto next = Clock::time_point::max();
  for (auto* body : bodies_) {
    if (has_room(staying, wanted)) break;
    if (body->is_taken_back_.load(std::memory_order_relaxed)) continue;
    const auto due = std::min(body->made_ + limits_.age, body->progress_.load(std::memory_order_relaxed) + limits_.stall);
    if (due > now) {
      next = std::min(next, due);
      continue;
    }
    body->is_taken_back_.store(true, std::memory_order_relaxed);
    for (auto* taker : body->takers_) taker->end_();
    staying -= body->size_;
  }
  return next;
}

std::shared_ptr<SharedBody> BodyRoom::put(std::string bytes, bool is_packed) {
  bytes.shrink_to_fit();
  return std::make_shared<SharedBody>(shared_from_this(), std::move(bytes), is_packed);
}

std::size_t BodyRoom::bytes() const {
  const std::lock_guard lock{mutex_};
  return bytes_;
}

SharedBody::SharedBody(std::shared_ptr<BodyRoom> room, std::string bytes, bool is_packed)
    : room_(std::move(room)), bytes_(std::move(bytes)), size_(bytes_.size()), is_packed_(is_packed) {
  const std::lock_guard lock{room_->mutex_};
  room_->bodies_.push_back(this);
  room_->bytes_ += size_;
}

SharedBody::~SharedBody() {
  bytes_ = std::string{};  // before others are told that there is room
  {
    const std::lock_guard lock{room_->mutex_};
    room_->bodies_.remove(this);
    room_->bytes_ -= size_;
  }
  room_->freed_.notify_all();
}

SharedBody::Taker::Taker(std::shared_ptr<SharedBody> body, std::function<void()> end)
    : body_(std::move(body)), end_(std::move(end)) {
  const std::lock_guard lock{body_->room_->mutex_};
  body_->takers_.push_back(this);
  if (is_over()) end_();
}

SharedBody::Taker::~Taker() {
  const std::lock_guard lock{body_->room_->mutex_};
  body_->takers_.remove(this);
}

void SharedBody::Taker::note_progress() noexcept { body_->progress_.store(BodyRoom::Clock::now(), std::memory_order_relaxed); }

bool SharedBody::Taker::is_over() const noexcept { return body_->is_taken_back_.load(std::memory_order_relaxed); }

}  // namespace headroom::exporter
