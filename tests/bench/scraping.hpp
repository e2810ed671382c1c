// What benchmarks of the exporter share: managers that make up a wanted number of series, a client as Prometheus is one, how long scrapes
// took, and how much memory a process holds.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <headroom/guard.hpp>
#include <headroom/manager.hpp>
#include <headroom/null_resource.hpp>

#include "../integration/exporter/http_client.hpp"

namespace headroom::bench {

/// Lines of a text of metrics that are samples: each is a series.
[[nodiscard]] inline std::size_t count_series(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size();) {
    count += std::size_t{text[at] != '#'};
    at = std::min(text.find('\n', at), text.size() - 1) + 1;
  }
  return count;
}

[[nodiscard]] inline double resident_kib() {
  std::ifstream file{"/proc/self/statm"};
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  file >> size >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1024.0;
}

/// Guards with four tags and four hooks each, on a device with an index and a UUID; all that a program of today may have are 64.
class Population {
public:
  static constexpr std::size_t kMostGuards = 64;

  /// Makes guards until `series()` says that there are `wanted`, or there are as many as a program may have.
  template <class Series>
  Population(std::size_t wanted, Series const& series) {
    while (managers_.size() < kMostGuards && series() < wanted) add();
  }

  /// Never none.
  [[nodiscard]] GpuMemoryManager& manager() {
    if (managers_.empty()) add();
    return managers_.front();
  }

private:
  static constexpr int kEach = 4;

  void add() {
    auto const number = std::to_string(managers_.size());
    auto device =
        Device::custom("NVIDIA H200", std::make_shared<NullResource>(), 0, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6").value();
    auto& manager = managers_.emplace_back(
        GpuMemoryManager::create(device, MemoryBudget::with_limit(std::uint64_t{1} << 40), "manager " + number).value());
    auto const& guard = guards_.emplace_back(MemoryGuardBuilder(manager).build().value());
    for (int i = 0; i < kEach; ++i) {
      auto const name = std::to_string(i);
      static_cast<void>(guard.register_hook({.name = "cache " + name, .callback = [](HookContext const&) { return 0U; }}));
      auto const layer = "layer " + name;
      for (std::size_t bytes = 256; bytes <= (std::size_t{1} << 30); bytes *= 4) {
        held_.push_back(manager.alloc<std::byte>(bytes, AllocTag{layer}).value());
      }
    }
  }

  std::vector<GpuMemoryManager> managers_;
  std::vector<MemoryGuard> guards_;
  std::vector<TrackedBuffer<std::byte>> held_;
};

/// Scrapes over a connection that is kept, as Prometheus keeps it, until the server ends it.
class ScrapeClient {
public:
  explicit ScrapeClient(std::uint16_t port) : port_{port} {}

  /// Bytes of the body; 0: it failed.
  std::size_t scrape(std::string_view headers = {}) {
    auto const request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + std::string{headers} + "\r\n";
    for (int attempts = 0; attempts < 2; ++attempts) {
      if (!client_) client_.emplace(port_);
      std::size_t wanted = 0;
      std::size_t body = 0;
      auto const is_whole = [&](std::string const& bytes) {
        if (body == 0) {
          auto const end = bytes.find("\r\n\r\n");
          if (end == std::string::npos) return false;
          constexpr std::string_view kLength = "Content-Length: ";
          auto const length = bytes.find(kLength);
          if (length == std::string::npos || length > end) return true;
          body = std::strtoul(bytes.c_str() + length + kLength.size(), nullptr, 10);
          wanted = end + 4 + body;
        }
        return bytes.size() >= wanted;
      };
      auto const answer = client_->connected() && client_->say(request) ? client_->read_until(is_whole) : std::string{};
      if (answer.empty() || answer.find("Connection: close") < answer.find("\r\n\r\n")) client_.reset();
      if (wanted != 0 && answer.size() == wanted && answer.starts_with("HTTP/1.1 200")) return body;
    }
    return 0;
  }

private:
  std::uint16_t port_;
  std::optional<test::Client> client_;
};

/// How long each scrape took, and how much of a processor this process spent meanwhile.
class ScrapeTimer {
public:
  template <class Scrape>
  auto run(Scrape&& scrape) {
    auto const cpu = cpu_ns();
    auto const begin = std::chrono::steady_clock::now();
    auto result = scrape();
    auto const wall = std::chrono::steady_clock::now() - begin;
    wall_ns_.push_back(static_cast<double>(std::chrono::nanoseconds{wall}.count()));
    cpu_ns_.push_back(cpu_ns() - cpu);
    return result;
  }

  /// What another one timed, as if it had been timed here.
  void add(ScrapeTimer const& other) {
    wall_ns_.insert(wall_ns_.end(), other.wall_ns_.begin(), other.wall_ns_.end());
    cpu_ns_.insert(cpu_ns_.end(), other.cpu_ns_.begin(), other.cpu_ns_.end());
  }

  [[nodiscard]] std::size_t count() const { return wall_ns_.size(); }
  /// Never call it before the first scrape.
  [[nodiscard]] double wall_ms(double share) { return at(wall_ns_, share) / 1e6; }

  void report(benchmark::State& state, double target_ns) {
    if (wall_ns_.empty()) return;
    state.counters["cpu_ms"] = at(cpu_ns_, 0.5) / 1e6;
    state.counters["p99_ns"] = at(wall_ns_, 0.99);
    state.counters["max_ns"] = at(wall_ns_, 1.0);
    state.counters["target_ns"] = target_ns;
  }

private:
  [[nodiscard]] static double cpu_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
  }
  [[nodiscard]] static double at(std::vector<double>& values, double share) {
    std::ranges::sort(values);
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
  }

  std::vector<double> wall_ns_, cpu_ns_;
};

}  // namespace headroom::bench
