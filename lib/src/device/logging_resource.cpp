#include <headroom/logging_resource.hpp>

#include <atomic>
#include <utility>

#include "base/clock.hpp"
#include "flight/directory.hpp"
#include "flight/log_lines.hpp"
#include "flight/recorder.hpp"

namespace headroom {
namespace {

using flight::EventKind;

// Written and read by every create(); relaxed, since only distinctness of the results matters.
std::atomic<std::uint32_t> last_number{0};

// How the line of a call tells that the resource below threw; the exception itself goes on.
Error thrown_error() noexcept {
  Error error;
  error.kind = ErrorKind::driver;
  error.layer = Layer::resource;
  return error;
}

}  // namespace

Result<std::shared_ptr<LoggingResource>> LoggingResource::create(std::shared_ptr<DeviceResource> inner, std::string_view name) {
  auto checked = InnerResource::check(std::move(inner), "LoggingResource");
  if (!checked) return tl::make_unexpected(std::move(checked.error()));
  if (!flight::start_recorder()) {
    return fail(ErrorKind::io, Layer::resource, "the system has no memory for the flight file (about 16 MiB)");
  }
  if (flight::in_forked_child()) {
    return fail(
        ErrorKind::unsupported, Layer::resource,
        "this process was forked after headroom started in its parent: nobody would read the lines; make the LoggingResource "
        "before the fork in the parent, or exec");
  }
  return std::make_shared<LoggingResource>(Key{}, *std::move(checked), name);
}

LoggingResource::LoggingResource(Key, InnerResource inner, std::string_view name)
    : ResourceDecorator(std::move(inner)),
      counts_(std::make_shared<flight::LogCounts>()),
      label_(name.empty() ? this->inner()->name() : name),
      number_((last_number.fetch_add(1, std::memory_order_relaxed) + 1) & static_cast<std::uint32_t>(flight::kLogMask)),
      directory_id_(flight::add_entry(flight::EntryKind::log, 0, number_, 0, label_)) {}

LoggingResource::~LoggingResource() {
  if (!flight::in_forked_child()) flight::close_entry(directory_id_);
}

std::uint64_t LoggingResource::operations() const noexcept { return counts_->total(); }

// Times are ordered readings: an address goes from one thread to another in less than a cache miss, and its lines must not change
// places by that.
Result<Block> LoggingResource::allocate(AllocRequest const& request) {
  try {
    auto block = ResourceDecorator::allocate(request);
    if (block) [[likely]] {
      write(EventKind::resource_allocate, ticks_now_ordered(), request, reinterpret_cast<std::uintptr_t>(block->pointer),
            nullptr);
    } else {
      write(EventKind::resource_refusal, ticks_now_ordered(), request, request.bytes, &block.error());
    }
    return block;
  } catch (...) {
    const Error error = thrown_error();
    write(EventKind::resource_refusal, ticks_now_ordered(), request, request.bytes, &error);
    throw;
  }
}

Result<void> LoggingResource::deallocate(Block const& block) {
  const std::uint64_t asked = ticks_now_ordered();
  try {
    auto result = ResourceDecorator::deallocate(block);
    if (result) [[likely]] {
      write(EventKind::resource_free, asked, block, nullptr);
    } else {
      write(EventKind::resource_free_failed, asked, block, &result.error());
    }
    return result;
  } catch (...) {
    const Error error = thrown_error();
    write(EventKind::resource_free_failed, asked, block, &error);
    throw;
  }
}

void LoggingResource::write(EventKind kind, std::uint64_t ticks, AllocRequest const& request, std::uint64_t address,
                            Error const* error) const noexcept {
  flight::write_log_line(*counts_, {.kind = kind,
                                    .log = number_,
                                    .ticks = ticks,
                                    .address = address,
                                    .bytes = request.bytes,
                                    .alignment = request.alignment,
                                    .stream = request.stream.value,
                                    .tag = request.tag,
                                    .result = error != nullptr ? flight::pack_result(error->kind, error->layer) : 0});
}

void LoggingResource::write(EventKind kind, std::uint64_t ticks, Block const& block, Error const* error) const noexcept {
  const AllocRequest as_request{.bytes = block.bytes, .alignment = block.alignment, .stream = block.stream, .tag = block.tag};
  write(kind, ticks, as_request, reinterpret_cast<std::uintptr_t>(block.pointer), error);
}

std::string_view LoggingResource::name() const noexcept { return "logging"; }

}  // namespace headroom
