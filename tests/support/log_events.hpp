// The lines of LoggingResources as events, and a resource that misbehaves, for tests.
#pragma once

#include <memory>
#include <stdexcept>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/logging_resource.hpp>
#include <headroom/null_resource.hpp>

namespace headroom::test {

/// The lines of one log that can still be read, in order of time.
inline std::vector<flight::Event> lines_of(LoggingResource const& log) {
  flight::EventReader reader{flight::FlightView::of_this_process().value()};
  std::vector<flight::Event> events;
  std::vector<flight::Gap> gaps;
  reader.poll(events, gaps);
  flight::sort_timeline(events);
  std::erase_if(events, [&](auto const& event) { return !event.is_log_line() || event.log() != log.number(); });
  return events;
}

/// Throws where others return errors.
class ThrowingResource final : public DeviceResource {
public:
  Result<Block> allocate(AllocRequest const&) override { throw std::runtime_error{"no allocation today"}; }
  Result<void> deallocate(Block const&) override { throw std::runtime_error{"no free today"}; }
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  [[nodiscard]] std::string_view name() const noexcept override { return "throwing"; }
};

inline std::shared_ptr<LoggingResource> logged_null() {
  return LoggingResource::create(std::make_shared<NullResource>()).value();
}

}  // namespace headroom::test
