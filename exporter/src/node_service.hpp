// headroom: what a node exporter serves, and the three threads that keep it true.
//
// One thread watches the folders and maps files (node_watch.hpp), so that nothing holds up the next short job; one sees who has ended,
// four times a second, and writes post-mortems (node_books.hpp, node_post_mortems.hpp); and one follows what the page shows
// (node_followed.hpp), which a post-mortem must not hold up. A scrape sees endings by itself.
//
// Thread safety: every member from any thread, but for start() and stop(), which belong to one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <headroom/gpu_sampler.hpp>

#include "fork_registry.hpp"
#include "gpu_metrics.hpp"
#include "http.hpp"
#include "metrics_text.hpp"
#include "node_books.hpp"
#include "node_followed.hpp"
#include "node_post_mortems.hpp"
#include "node_state.hpp"
#include "node_watch.hpp"
#include "service.hpp"

namespace headroom::exporter {

/// Around fork(): the threads are the parent's, and whoever is in a child leaves all as it is (NodeExporter). Its threads end before exit()
/// takes away what they use.
class NodeService : public ForkAware {
public:
  struct Options {
    std::vector<std::string> folders;  ///< empty: the usual ones
    std::chrono::nanoseconds keep_dead{std::chrono::minutes{5}};
    NodeLimits limits;
    bool writes_post_mortems = true;
    std::string dump_folder;                       ///< empty: where programs put their own
    bool survives_truncation = false;              ///< see truncation_guard.hpp
    GpuSampler::Source gpus = GpuSampler::nvml();  ///< of this machine
    std::function<void(std::string const&)> log;   ///< one line, from any thread; must not throw
  };
  explicit NodeService(Options options);
  NodeService(NodeService const&) = delete;
  NodeService& operator=(NodeService const&) = delete;
  ~NodeService() override;

  void before_fork() noexcept override { mutex_.lock(); }
  void after_fork_in_parent() noexcept override { mutex_.unlock(); }
  void after_fork_in_child() noexcept override {
    is_of_forked_parent_ = true;
    mutex_.unlock();
  }
  void stop_at_exit() noexcept override { stop(); }

  /// The files that are there now are known when it returns. Errors: io (no thread).
  [[nodiscard]] Result<void> start();
  void stop() noexcept;

  /// In the text format or as OpenMetrics. What cannot be collected is left out and counted.
  [[nodiscard]] Reply metrics(Request const& request = {});
  /// What people see: node_state.hpp.
  [[nodiscard]] Reply status(Request const& request = {}) { return pages_.status(request); }
  [[nodiscard]] Reply state(Request const& request = {}) { return pages_.state(request); }
  [[nodiscard]] Reply snapshot(Request const& request = {}) { return pages_.snapshot(request); }

  /// Everything that is served, by path.
  [[nodiscard]] static Routes routes_of(std::shared_ptr<NodeService> const& service);

  void count_error() noexcept { errors_.fetch_add(1, std::memory_order_relaxed); }

private:
  void repeat(void (NodeService::*work)()) noexcept;
  void look();
  void follow();
  [[nodiscard]] std::string text(MetricsFormat format);
  [[nodiscard]] ToldFigures add_gpus(Families& families);
  void add_own(Families& families, NodeBooks::Reading const& reading) const;

  Options options_;
  Labels own_labels_;
  NodeBooks books_;
  NodePostMortems post_mortems_;
  GpuSampler gpus_;
  NodeFollowed followed_;
  NodeState pages_;
  NodeWatch watch_;
  ScrapeTimes scrapes_;
  std::atomic<std::uint64_t> errors_{0};  // any thread, relaxed: a count
  std::mutex mutex_;                      // guards stopping_
  std::condition_variable stopped_;
  bool stopping_ = false;
  bool is_of_forked_parent_ = false;  // written in a child before it runs on; there is nobody to join
  std::mutex stop_mutex_;             // guards the joining of the two: at exit somebody else may be stopping too
  std::thread watcher_;
  std::thread keeper_;
  std::thread follower_;
};

}  // namespace headroom::exporter
