// A flight file as a source: the view and the event reader, as they are.
#include <algorithm>
#include <utility>

#include <headroom/follow_source.hpp>

#include "base/clock.hpp"

namespace headroom::follow {
namespace {

class FlightSource final : public Source {
public:
  explicit FlightSource(flight::FlightView view, bool is_copy)
      : view_{std::move(view)},
        reader_{view_, flight::EventReader::Start::zero},
        is_copy_{is_copy},
        shares_our_clock_{has_our_clock()} {}

  [[nodiscard]] SourceKind kind() const override { return SourceKind::flight; }
  [[nodiscard]] std::string title() const override { return view_.path(); }

  [[nodiscard]] Result<void> read(News& news) override {
    // Asked first: what a process wrote before it died is all there then.
    auto const is_final = is_copy_ || view_.liveness() == flight::Liveness::dead;
    auto const first = news.events.size();
    reader_.poll(news.events, news.gaps, is_final);
    for (auto i = first; i < news.events.size(); ++i) newest_ticks_ = std::max(newest_ticks_, news.events[i].ticks);
    news.ended = is_final;
    return {};
  }

  [[nodiscard]] flight::ProcessInfo process() const override { return view_.process(); }
  [[nodiscard]] flight::Liveness liveness() const override { return view_.liveness(); }
  [[nodiscard]] flight::ClockMap clock() const override { return view_.clock(); }
  [[nodiscard]] std::uint64_t now_ticks() const override {
    auto const is_running = shares_our_clock_ && view_.liveness() == flight::Liveness::living;
    return is_running ? std::max(newest_ticks_, headroom::ticks_now()) : newest_ticks_;
  }
  [[nodiscard]] std::vector<flight::LedgerSnapshot> ledgers() const override { return view_.all_ledgers(); }
  void for_each_live(std::function<void(flight::LiveAllocation const&)> const& visit) const override {
    static_cast<void>(view_.for_each_live(visit));  // a slot that is being written has its record still to come
  }
  [[nodiscard]] std::optional<flight::DirectoryName> name(std::uint32_t id) const override { return view_.name(id); }
  [[nodiscard]] std::vector<flight::HookSnapshot> hooks() const override { return view_.hooks(); }
  [[nodiscard]] std::vector<flight::FirstFailureInfo> first_failures() const override { return view_.first_failures(); }
  [[nodiscard]] std::vector<flight::LaneInfo> lanes() const override { return view_.lanes(); }
  [[nodiscard]] std::vector<flight::InFlightOperation> in_flight() const override { return view_.in_flight(); }
  [[nodiscard]] std::uint64_t accepted() const override { return reader_.accepted(); }
  [[nodiscard]] std::uint64_t lost() const override { return reader_.lost(); }

private:
  /// A process of this machine counts what we count, if it chose the same counter.
  [[nodiscard]] bool has_our_clock() const {
    return view_.header().clock_source == static_cast<std::uint32_t>(headroom::clock_kind());
  }

  flight::FlightView view_;
  flight::EventReader reader_;
  bool is_copy_;
  bool shares_our_clock_;
  std::uint64_t newest_ticks_ = 0;
};

}  // namespace

std::unique_ptr<Source> flight_source(flight::FlightView view) { return std::make_unique<FlightSource>(std::move(view), false); }

std::unique_ptr<Source> flight_copy_source(flight::FlightView view) {
  return std::make_unique<FlightSource>(std::move(view), true);
}

Result<std::unique_ptr<Source>> open_flight_source(std::string path) {
  auto view = flight::FlightView::open(std::move(path));
  if (!view) return tl::unexpected{std::move(view.error())};
  return flight_source(std::move(*view));
}

}  // namespace headroom::follow
