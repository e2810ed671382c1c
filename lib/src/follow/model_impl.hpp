// headroom: the insides of a model, shared by its reading (model_poll.cpp, model_table.cpp) and its answers (model_answers.cpp,
// series.cpp).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <headroom/follow.hpp>

#include "follow/journal.hpp"
#include "follow/names.hpp"
#include "follow/op_sequence.hpp"
#include "follow/past.hpp"
#include "follow/stories.hpp"

namespace headroom::follow {

class Model::Impl {
public:
  Impl(std::unique_ptr<Source> from, Options const& wanted);

  // ── reading: model_poll.cpp ──

  [[nodiscard]] Result<bool> poll(bool give_up);

  /// One ledger's operations on their way into its past.
  struct Track {
    Track(std::uint64_t second, std::size_t chunk_steps) : sequence{second}, past{chunk_steps} {}
    OpSequence sequence;
    LedgerPast past;
    std::uint64_t gaps = 0;
    std::uint64_t missing = 0;
    std::uint64_t number_then = 0;     // of the ledger's last operation when a past without operations began
    std::uint32_t looks = 0;           // … at the table, of which none was whole
    std::uint64_t owner_since = 0;     // created_ticks of the manager that the past has come to
    std::uint64_t owner_in_books = 0;  // the same of the books, at the poll before
  };

  Options options;
  std::unique_ptr<Source> source;
  flight::ClockMap clock;
  std::vector<flight::LedgerSnapshot> books;
  std::map<std::uint32_t, Track> tracks;
  Journal journal;
  Stories stories;
  Names tags{0xFFFF};
  Names sites{0x10'0000};
  std::uint64_t last_ticks = 0;
  std::optional<std::uint64_t> origin_ticks;  // what times are told from, once it is known
  std::uint64_t polled_ticks = 0;             // the source's now at the last poll
  bool ended = false;
  bool has_more = false;  // the last read said so

  [[nodiscard]] flight::LedgerSnapshot const* book_of(std::uint32_t cell) const noexcept;
  [[nodiscard]] Track const* track_of(std::uint32_t cell) const noexcept;
  /// When the manager or account in the books began, where its cell had another owner before; else 0.
  [[nodiscard]] static std::uint64_t owner_since(flight::LedgerSnapshot const* book) noexcept {
    return book != nullptr && book->generation > 1 ? book->created_ticks : 0;
  }
  [[nodiscard]] std::size_t memory() const noexcept;
  [[nodiscard]] Operation to_operation(std::uint32_t cell, Step const& step) const;
  [[nodiscard]] LiveBlock to_live_block(Block const& block) const;

private:
  /// How much of all pasts is kept: two that differ answer differently.
  struct Extent {
    std::uint64_t steps = 0, segments = 0, behind = 0;
    friend bool operator==(Extent const&, Extent const&) = default;
  };
  using Slots = std::unordered_map<std::uint32_t, std::vector<flight::LiveAllocation>>;

  [[nodiscard]] Extent extent() const noexcept;
  void note_origin(News const& news);
  void sort_in(News& news);
  [[nodiscard]] Track& track(std::uint32_t cell);
  [[nodiscard]] Step to_step(flight::Event const& event);
  void add_journal(News const& news);
  void drain(std::uint32_t cell, Track& track, bool give_up);
  void begin(std::uint32_t cell, Track& track, std::uint64_t alloc_word, Step const& first, std::uint64_t missing, bool whole);
  void begin_quiet_ledgers(bool give_up);
  [[nodiscard]] bool never_wrapped(flight::LedgerSnapshot const* book) const;
  void reconcile_with_table();
  void note_books(bool final);
  void note_owner(flight::LedgerSnapshot const& book, Track& track, bool final);
  void forget();
  [[nodiscard]] Slots const& slots();
  [[nodiscard]] Block to_block(flight::LiveAllocation const& live);
  [[nodiscard]] bool is_older(flight::LiveAllocation const& live, std::uint64_t alloc_word, Step const& first) const;
  [[nodiscard]] bool is_newer(flight::LiveAllocation const& live, flight::LedgerSnapshot const& book, std::uint64_t now) const;
  [[nodiscard]] std::uint16_t tag_number(std::uint32_t id);
  [[nodiscard]] std::uint32_t site_number(std::uint32_t id);
  [[nodiscard]] std::string label(std::uint32_t id) const;

  std::uint64_t second_ = 0;  // in ticks
  std::uint64_t patience_ticks_ = 0;
  std::size_t chunk_steps_;
  // Journal events of the last read: what came before them, on their threads and on others, may come in this one.
  std::vector<flight::Event> held_;
  // Gaps of the journal that the stories do not know of yet: told before the lane's next record is.
  std::vector<flight::Gap> cuts_;
  // Of one poll: an id of the directory may name something else at the next one.
  std::unordered_map<std::uint32_t, std::uint16_t> tag_numbers_;
  std::unordered_map<std::uint32_t, std::uint32_t> site_numbers_;
  std::optional<Slots> slots_;
};

}  // namespace headroom::follow
