#include "service.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <unistd.h>
#include <cerrno>

#include <prometheus/text_serializer.h>

#include "metrics.hpp"
#include "status_text.hpp"

namespace headroom::exporter {
namespace {

/// Who we are, when there are no books that say so.
Labels own_labels() {
  return with_label(with_label({}, "process", program_invocation_short_name), "pid", std::to_string(getpid()));
}

}  // namespace

void ScrapeTimes::observe(std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  const auto bucket = static_cast<std::size_t>(std::ranges::lower_bound(kBounds, seconds) - kBounds.begin());
  const std::lock_guard lock{mutex_};
  ++counts_[bucket];
  sum_seconds_ += seconds;
}

prometheus::ClientMetric::Histogram ScrapeTimes::histogram() const {
  const std::lock_guard lock{mutex_};
  prometheus::ClientMetric::Histogram result;
  for (std::size_t index = 0; index < counts_.size(); ++index) {
    result.sample_count += counts_[index];
    result.bucket.push_back(
        {result.sample_count, index < kBounds.size() ? kBounds[index] : std::numeric_limits<double>::infinity()});
  }
  result.sample_sum = sum_seconds_;
  return result;
}

Service::Service(GpuSampler::Source gpus) : gpus_(std::move(gpus)), environment_(VisibilityEnvironment::of_this_process()) {}

std::vector<prometheus::MetricFamily> Service::collect_all() {
  Families families;
  Labels labels = own_labels();
  try {
    if (const auto view = flight::FlightView::of_this_process()) {
      labels = process_labels(view->process());
      CollectOptions options;
      options.events_lost = events_lost_.load(std::memory_order_relaxed);
      const auto gpus = gpus_.sample();
      if (gpus) {
        options.gpus = gpus->devices;
        options.visible = resolve_visible_devices(environment_, gpus->devices);
      }
      if (gpus_.is_stuck()) count_error();
      collect_into(families, *view, options);
    }
  } catch (...) {
    count_error();
  }
  families.add(Metric::exporter_scrape_duration_seconds, labels, scrapes_.histogram());
  families.add(Metric::exporter_errors_total, labels, errors());
  return families.take();
}

Reply Service::metrics() {
  const auto begin = Clock::now();
  Reply reply{.body = prometheus::TextSerializer{}.Serialize(collect_all()),
              .content_type = "text/plain; version=0.0.4; charset=utf-8"};
  scrapes_.observe(Clock::now() - begin);
  return reply;
}

Reply Service::status() {
  const auto view = flight::FlightView::of_this_process();
  if (!view) return {.body = status_text(nullptr, {}, errors())};
  const auto process = view->process();
  return {.body = status_text(&process, view->ledgers(), errors())};
}

void Service::tick() {
  if (!reader_) {
    auto view = flight::FlightView::of_this_process();
    if (!view) return;
    reader_.emplace(std::move(*view));
  }
  events_.clear();
  gaps_.clear();
  reader_->poll(events_, gaps_);
  events_lost_.store(reader_->lost(), std::memory_order_relaxed);
}

}  // namespace headroom::exporter
