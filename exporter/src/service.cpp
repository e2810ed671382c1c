#include "service.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <unistd.h>
#include <cerrno>

#include <nlohmann/json.hpp>

#include "metrics.hpp"
#include "metrics_text.hpp"
#include "negotiation.hpp"
#include "page.hpp"
#include "state_json.hpp"
#include "status_text.hpp"

namespace headroom::exporter {
namespace {

/// Who we are, when there are no books that say so.
Labels own_labels() {
  return with_label(with_label({}, "process", program_invocation_short_name), "pid", std::to_string(getpid()));
}

/// Of this process alone, which lives as long as anybody asks. Its closed managers are in the sums, so that those never fall.
NodeBooks::Options own_books() {
  NodeBooks::Options options;
  options.liveness = [](flight::FlightView const&) { return flight::Liveness::living; };
  options.keeps_closed = false;
  return options;
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

Service::Service(GpuSampler::Source gpus)
    : gpus_(std::move(gpus)), environment_(VisibilityEnvironment::of_this_process()), books_(own_books()) {}

std::shared_ptr<GpuSample const> Service::gpu_sample() {
  auto sample = gpus_.sample();
  if (gpus_.is_stuck()) count_error();
  return sample;
}

std::vector<prometheus::MetricFamily> Service::collect_all() {
  Families families;
  Labels labels = own_labels();
  try {
    if (const auto process = followed()) {
      CollectOptions options;
      options.events_lost = process->events_lost();
      const auto gpus = gpu_sample();
      if (gpus) {
        options.gpus = gpus->devices;
        options.visible = resolve_visible_devices(environment_, gpus->devices);
      }
      auto reading = books_.begin(NodeBooks::Clock::now());
      while (books_.read_some(reading, 1, NodeBooks::Clock::now())) {
        for (auto& living : reading.living) {
          labels = process_labels(living.process);
          collect_into(families, *living.view, living.process, std::move(living.ledgers), options);
        }
      }
      for (auto const& [name, sums] : reading.sums) sums.exited.add_to(families, with_label({}, "process", name));
    }
  } catch (...) {
    count_error();
  }
  families.add(Metric::exporter_scrape_duration_seconds, labels, scrapes_.histogram());
  families.add(Metric::exporter_errors_total, labels, errors());
  return families.take();
}

Routes Service::routes_of(std::shared_ptr<Service> const& service) {
  return {{"/", [service](Request const& request) { return service->status(request); }},
          {"/metrics", [service](Request const& request) { return service->metrics(request); }},
          {"/api/state.json", [service](Request const& request) { return service->state(request); }},
          {"/snapshot.json", [service](Request const& request) { return service->snapshot(request); }},
          {"/-/healthy", [](Request const&) { return healthy(); }}};
}

Reply Service::metrics(Request const& request) {
  const auto begin = Clock::now();
  const auto format = wanted_format(request.accept);
  Reply reply{.body = metrics_text(format, collect_all()), .content_type = content_type_of(format), .varies_by_accept = true};
  scrapes_.observe(Clock::now() - begin);
  return reply;
}

Reply Service::status(Request const& request) {
  if (auto page = status_page_if_preferred(request)) return std::move(*page);
  Reply reply{.varies_by_accept = true};
  if (const auto view = flight::FlightView::of_this_process()) {
    const auto process = view->process();
    reply.body = status_text(&process, view->ledgers(), errors());
  } else {
    reply.body = status_text(nullptr, {}, errors());
  }
  return reply;
}

Reply Service::state(Request const& request) {
  const auto wanted = StateRequest::from_query(request.query);
  std::vector<nlohmann::ordered_json> processes;
  StateLeftOut left_out;
  if (const auto process = followed()) {
    left_out.histories = process->last_reading().left_out;
    const bool with_details = wanted.wants(state_id(process->view().process()), 1);
    const auto look = process->look({.with_details = with_details, .since_second = wanted.since_second});
    const auto gpus = with_details ? gpu_sample() : nullptr;
    processes.push_back(process_json(look, with_details, gpus ? std::span{gpus->devices} : std::span<GpuDevice const>{}));
  }
  return {.body = state_text("process", std::move(processes), errors(), left_out),
          .content_type = "application/json",
          .headers = {{"Cross-Origin-Resource-Policy", "same-origin"}}};
}

Reply Service::snapshot(Request const& request) {
  const auto view = flight::FlightView::of_this_process();
  if (!view) return refusal(404, "404: the program has made no manager yet, so there is nothing to tell");
  return snapshots_.give(*view, request);
}

std::shared_ptr<Followed> Service::followed() {
  const std::lock_guard lock{followed_mutex_};
  if (!followed_) {
    if (auto view = flight::FlightView::of_this_process()) {
      auto process = std::make_shared<Followed>(std::move(*view));
      static_cast<void>(books_.arrive({process, &process->view()}, {}, {}, NodeBooks::Clock::now()));
      followed_ = std::move(process);
    }
  }
  return followed_;
}

void Service::tick() {
  const auto process = followed();
  if (process && !process->tick()) count_error();
}

}  // namespace headroom::exporter
