// Every resource that the conformance suite runs over. To add one: write its make function, say what it can do, append it to
// all_resources(). A factory that returns an error (no GPU on this machine) skips its tests.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <headroom/host_resource.hpp>
#include <headroom/null_resource.hpp>

namespace headroom::testing {

/// What a resource promises beyond the contract that all share.
struct ResourceTraits {
  bool keeps_books = true;     ///< bytes_outstanding counts
  bool detects_misuse = true;  ///< double free, unknown pointer, … are told apart
  bool owns_ranges = true;     ///< blocks never overlap (not only their first bytes)
  bool knows_memory = true;    ///< memory_info has figures
  bool checks_streams = true;  ///< an unknown stream is refused
  bool writes = true;          ///< fill_zero and copy_in succeed
  bool frees_are_pending = false;
};

struct MadeResource {
  std::shared_ptr<DeviceResource> resource;
  std::function<Result<StreamId>()> create_stream;  ///< empty: the resource knows only stream 0, or takes any
};

struct ResourceFactory {
  std::string name;  ///< letters and digits only: part of the test's name
  std::function<Result<MadeResource>()> make;
  ResourceTraits traits;
  friend std::ostream& operator<<(std::ostream& out, ResourceFactory const& factory) { return out << factory.name; }
};

/// Total memory of every host device below.
inline constexpr std::uint64_t kSuiteTotalBytes = std::uint64_t{1} << 30;

inline Result<MadeResource> make_host(HostOptions const& options) {
  return HostResource::create(options).map(
      [](std::shared_ptr<HostResource> host) { return MadeResource{host, [raw = host.get()] { return raw->create_stream(); }}; });
}

inline std::vector<ResourceFactory> all_resources() {
  return {
      {"HostTouch", [] { return make_host({.total_bytes = kSuiteTotalBytes}); }, {}},
      {"HostAddressesOnly", [] { return make_host({.total_bytes = kSuiteTotalBytes, .touch_memory = false}); }, {}},
      {"HostStreamOrdered",
       [] { return make_host({.total_bytes = kSuiteTotalBytes, .stream_ordered = true}); },
       {.frees_are_pending = true}},
      {"HostCached",
       [] { return make_host({.total_bytes = kSuiteTotalBytes, .release_threshold_bytes = kSuiteTotalBytes / 4}); },
       {}},
      {"HostCoarse",
       [] { return make_host({.total_bytes = kSuiteTotalBytes, .granularity_bytes = 65536, .touch_memory = false}); },
       {}},
      {"Null",
       []() -> Result<MadeResource> { return MadeResource{std::make_shared<NullResource>(), {}}; },
       {.keeps_books = false, .detects_misuse = false, .owns_ranges = false, .knows_memory = false, .checks_streams = false}},
  };
}

}  // namespace headroom::testing
