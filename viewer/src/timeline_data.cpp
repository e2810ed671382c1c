#include "timeline_data.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <map>
#include <utility>

namespace headroom::viewer {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::size_t kMostLimits = 256;
constexpr std::size_t kMostBands = 4'096;
constexpr std::size_t kTagSamples = 32;

std::uint64_t begin_of(TickRange range, std::size_t column, std::size_t columns) {
  return range.begin + static_cast<std::uint64_t>(Wide{range.length()} * column / columns);
}

/// The tags that hold most where the total is highest, and at instants spread over the range.
std::vector<std::string> tags_to_show(follow::Model const& model, std::uint32_t ledger, TimelineData const& data,
                                      std::size_t most) {
  auto const highest = std::ranges::max_element(data.total, {}, &follow::SeriesColumn::high);
  auto const column = static_cast<std::size_t>(highest - data.total.begin());
  auto const count = data.total.size();
  std::map<std::string, std::uint64_t> sizes;
  auto const look = [&](std::uint64_t ticks) {
    for (auto& tag : model.state_at(ledger, ticks).tags) {
      auto& size = sizes[std::move(tag.name)];
      size = std::max(size, tag.bytes);
    }
  };
  look(begin_of(data.range, column, count));
  for (std::size_t i = 1; i <= kTagSamples; ++i) look(begin_of(data.range, i, kTagSamples) - 1);
  std::erase_if(sizes, [](auto const& size) { return size.second == 0; });
  std::vector<std::pair<std::uint64_t, std::string>> ordered;
  ordered.reserve(sizes.size());
  for (auto const& [name, size] : sizes) ordered.emplace_back(size, name);
  std::ranges::sort(ordered, [](auto const& one, auto const& other) {
    return one.first != other.first ? one.first > other.first : one.second < other.second;
  });
  std::vector<std::string> tags;
  for (auto& [size, name] : ordered) {
    if (tags.size() == most) break;
    tags.push_back(std::move(name));
  }
  return tags;
}

/// In a column in which several things happened, each tag's highest was at its own instant: they are brought down to the total's.
void stack(TimelineData& data) {
  data.rest.resize(data.total.size());
  for (std::size_t i = 0; i < data.total.size(); ++i) {
    auto const total = data.total[i].high;
    std::uint64_t sum = 0;
    for (auto const& layer : data.layers) sum += layer.bytes[i];
    if (sum > total) {
      for (auto& layer : data.layers) layer.bytes[i] = static_cast<std::uint64_t>(Wide{layer.bytes[i]} * total / sum);
    } else {
      data.rest[i] = total - sum;
      data.has_rest = data.has_rest || data.rest[i] != 0;
    }
  }
}

void read_journal(TimelineData& data, follow::Model const& model, std::uint32_t ledger) {
  std::vector<std::uint64_t> changes{data.range.begin};
  auto level = model.state_at(ledger, data.range.begin).pressure;
  auto since = data.range.begin;
  auto const close = [&](std::uint64_t ticks) {
    if (level > PressureLevel::low && ticks > since && data.bands.size() < kMostBands) {
      data.bands.push_back({.range = {.begin = since, .end = ticks}, .level = level});
    }
  };
  model.for_each_journal_event(data.range.begin, data.range.end - 1, [&](flight::Event const& event) {
    auto const is_second_half = (event.flags() & flight::kFlagContinues) != 0;  // of a refusal: it names no ledger
    if (event.is_log_line() || is_second_half || event.ledger() != ledger) return;
    switch (event.kind) {
      case flight::EventKind::refusal: {
        auto const column = data.column_of(event.ticks);
        if (data.failures.empty() || data.failures.back().column != column) {
          data.failures.push_back({.column = column, .first_ticks = event.ticks});
        }
        ++data.failures.back().count;
        break;
      }
      case flight::EventKind::budget:
        if (changes.size() < kMostLimits) changes.push_back(event.ticks);
        break;
      case flight::EventKind::pressure:
        close(event.ticks);
        level = static_cast<PressureLevel>(std::min<std::uint64_t>((event.words[2] >> 8U) & 0xFFU, 4));
        since = event.ticks;
        break;
      default: break;
    }
  });
  close(data.range.end);
  for (auto const ticks : changes) {
    auto const limit = model.state_at(ledger, ticks).limit;
    if (data.limits.empty() || data.limits.back().bytes != limit) data.limits.push_back({.begin = ticks, .bytes = limit});
  }
}

}  // namespace

std::size_t TimelineData::column_of(std::uint64_t ticks) const noexcept {
  if (range.empty() || total.empty()) return 0;
  auto const inside = std::clamp(ticks, range.begin, range.end - 1) - range.begin;
  return static_cast<std::size_t>(Wide{inside} * total.size() / range.length());
}

TimelineData timeline_data(follow::Model const& model, std::uint32_t ledger, TickRange range, std::size_t columns,
                           std::size_t most_tags) {
  TimelineData data;
  data.range = range;
  data.total = model.series(ledger, std::nullopt, range.begin, range.end, columns);
  if (data.total.empty()) return data;
  for (auto const& column : data.total) data.highest = std::max(data.highest, column.high);
  auto tags = tags_to_show(model, ledger, data, most_tags);
  auto const series = model.series_of_tags(ledger, tags, range.begin, range.end, columns);
  for (std::size_t i = 0; i < tags.size(); ++i) {
    TimelineLayer layer{.tag = std::move(tags[i]), .bytes = {}};
    layer.bytes.reserve(columns);
    std::ranges::transform(series[i], std::back_inserter(layer.bytes), &follow::SeriesColumn::high);
    data.layers.push_back(std::move(layer));
  }
  stack(data);
  read_journal(data, model, ledger);
  auto const peak = model.peak(ledger);
  if (peak.ticks && range.contains(*peak.ticks)) data.peak_ticks = peak.ticks;
  data.peak_bytes = peak.bytes;
  return data;
}

std::uint64_t byte_step(std::uint64_t top, std::size_t most) noexcept {
  auto const least = std::max<std::uint64_t>(top / std::max<std::size_t>(most, 1), 1);
  return least > (std::uint64_t{1} << 62U) ? std::uint64_t{1} << 63U : std::bit_ceil(least);
}

std::uint64_t time_step(std::uint64_t length_ns, std::size_t most) noexcept {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  constexpr std::uint64_t kMinute = 60 * kSecond;
  constexpr std::uint64_t kHour = 60 * kMinute;
  auto const least = std::max<std::uint64_t>(length_ns / std::max<std::size_t>(most, 1), 1);
  for (std::uint64_t unit = 1; unit < 10 * kSecond; unit *= 10) {
    for (auto const times : {1U, 2U, 5U}) {
      if (unit * times >= least) return unit * times;
    }
  }
  constexpr std::array kLong{10 * kSecond, 15 * kSecond, 30 * kSecond, kMinute,   2 * kMinute, 5 * kMinute, 10 * kMinute,
                             15 * kMinute, 30 * kMinute, kHour,        2 * kHour, 6 * kHour,   12 * kHour,  24 * kHour};
  auto const* const found = std::ranges::lower_bound(kLong, least);
  return found != kLong.end() ? *found : (least + 24 * kHour - 1) / (24 * kHour) * (24 * kHour);
}

}  // namespace headroom::viewer
