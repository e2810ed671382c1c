#include "trace/pickle/machine.hpp"

#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/thrown_error.hpp"
#include "trace/pickle/assembler.hpp"
#include "trace/pickle/memo.hpp"
#include "trace/pickle/path_finder.hpp"
#include "trace/pickle/program.hpp"
#include "trace/pickle/words.hpp"

namespace headroom::trace::pickle {

class Machine::Impl {
public:
  Impl(ByteSource& bytes, std::string name, Reuse const& reuse, Visitor& visitor)
      : program_{bytes, std::move(name)}, reuse_{&reuse}, visitor_{&visitor} {}

  [[nodiscard]] Result<bool> advance() {
    if (error_) return tl::unexpected{*error_};
    if (over_) return false;
    try {
      delivered_ = false;
      while (!delivered_ && !over_) {
        if (!program_.next(in_) || !carry_out()) {
          if (!error_) error_ = program_.error();
          return tl::unexpected{*error_};
        }
      }
      return !over_;
    } catch (std::bad_alloc const&) {
      error_ =
          make_error(ErrorKind::io, Layer::request, words([&] { return program_.name() + ": not enough memory to read it"; }));
      return tl::unexpected{*error_};
    }
  }

  [[nodiscard]] Value const& root() const noexcept { return root_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return program_.offset(); }
  [[nodiscard]] Store& store() noexcept { return assembler_.store(); }

private:
  // The program has checked that there are as many values as each opcode takes.

  [[nodiscard]] bool carry_out() {
    switch (in_.opcode) {
      case Opcode::proto:
      case Opcode::frame:
      case Opcode::mark: return true;
      case Opcode::stop: return stop();
      case Opcode::pop:
      case Opcode::pop_mark: return drop();
      case Opcode::dup: return fetch(stack_.back());
      case Opcode::none: return push(Assembler::none(in_.offset));
      case Opcode::new_true: return push(Assembler::boolean(true, in_.offset));
      case Opcode::new_false: return push(Assembler::boolean(false, in_.offset));
      case Opcode::bin_int:
      case Opcode::bin_int1:
      case Opcode::bin_int2:
      case Opcode::long1:
      case Opcode::long4: return push(Assembler::integer(in_.number, in_.negative, in_.offset));
      case Opcode::bin_float: return push(Assembler::real(in_.real, in_.offset));
      case Opcode::short_bin_unicode:
      case Opcode::bin_unicode:
      case Opcode::bin_unicode8:
      case Opcode::short_bin_string:
      case Opcode::bin_string: return push_text(Type::text);
      case Opcode::short_bin_bytes:
      case Opcode::bin_bytes:
      case Opcode::bin_bytes8:
      case Opcode::byte_array8: return push_text(Type::bytes);
      case Opcode::empty_list: return push_container(Type::list);
      case Opcode::empty_dict: return push_container(Type::dict);
      case Opcode::list: return make_container(Type::list);
      case Opcode::dict: return make_container(Type::dict);
      case Opcode::append: return append(stack_.size() - 1, Fate::single);
      case Opcode::appends: return append(in_.base, Fate::batch);
      case Opcode::set_item: return set(stack_.size() - 2, Fate::single);
      case Opcode::set_items: return set(in_.base, Fate::batch);
      case Opcode::empty_tuple: return make_tuple(stack_.size());
      case Opcode::tuple: return make_tuple(in_.base);
      case Opcode::tuple1: return make_tuple(stack_.size() - 1);
      case Opcode::tuple2: return make_tuple(stack_.size() - 2);
      case Opcode::tuple3: return make_tuple(stack_.size() - 3);
      case Opcode::bin_put:
      case Opcode::long_bin_put:
      case Opcode::memoize: return put();
      case Opcode::bin_get:
      case Opcode::long_bin_get: return get();
    }
    return refuse(Obstacle::other_run);
  }

  [[nodiscard]] bool push(Value&& value) {
    stack_.push_back(std::move(value));
    return true;
  }
  /// Pushes what was made, unless something was in the way.
  [[nodiscard]] bool push_made(Obstacle obstacle, Value&& made) {
    return obstacle == Obstacle::none ? push(std::move(made)) : refuse(obstacle);
  }
  [[nodiscard]] bool push_text(Type type) {
    Value made;
    auto const obstacle = assembler_.text(type, in_.text, in_.offset, made);
    return push_made(obstacle, std::move(made));
  }
  [[nodiscard]] bool push_container(Type type) {
    Value made;
    auto const obstacle = assembler_.container(type, reuse_->fate(containers_++), in_.offset, made);
    return push_made(obstacle, std::move(made));
  }
  [[nodiscard]] std::span<Value> from(std::size_t first) noexcept { return std::span{stack_}.subspan(first); }

  [[nodiscard]] bool make_tuple(std::size_t first) {
    Value made;
    auto const obstacle = assembler_.tuple(from(first), in_.offset, made);
    stack_.resize(first);
    return push_made(obstacle, std::move(made));
  }
  /// LIST or DICT, from everything above the mark.
  [[nodiscard]] bool make_container(Type type) {
    Value made;
    auto const items = from(in_.base);
    auto obstacle = assembler_.container(type, reuse_->fate(containers_++), in_.offset, made);
    if (obstacle == Obstacle::none) {
      obstacle = type == Type::list ? assembler_.append(made, items, Fate::unknown) : assembler_.set(made, items, Fate::unknown);
    }
    if (obstacle == Obstacle::key) return refuse_key(in_.base);
    // A list that holds items already: nobody can take them all.
    if (obstacle == Obstacle::none) Assembler::node_of(made).asked = !items.empty();
    stack_.resize(in_.base);
    return push_made(obstacle, std::move(made));
  }

  [[nodiscard]] bool set(std::size_t first, Fate fate) {
    auto& dict = stack_[first - 1];
    if (!dict.is(Type::dict)) return program_.refuse(in_, " of " + std::string{name_of(dict.type())} + "; expected a dict");
    auto const obstacle = assembler_.set(dict, from(first), fate);
    if (obstacle == Obstacle::key) return refuse_key(first);
    if (obstacle != Obstacle::none) return refuse(obstacle);
    stack_.resize(first);
    return true;
  }

  [[nodiscard]] bool append(std::size_t first, Fate fate) {
    auto& list = stack_[first - 1];
    if (!list.is(Type::list)) return program_.refuse(in_, " to " + std::string{name_of(list.type())} + "; expected a list");
    auto& node = Assembler::node_of(list);
    if (first == stack_.size()) return true;  // no items: nothing to ask about
    if (node.sealed) return refuse(Obstacle::sealed);
    if (!node.asked && !ask(first - 1)) return false;
    if (node.taken) return deliver(first, fate);
    auto const obstacle = assembler_.append(list, from(first), fate);
    if (obstacle != Obstacle::none) return refuse(obstacle);
    stack_.resize(first);
    return true;
  }

  [[nodiscard]] bool ask(std::size_t at) {
    auto& node = Assembler::node_of(stack_[at]);
    node.asked = true;
    auto const answer = paths_.find(stack_, program_.marks(), at);
    if (answer == PathFinder::Answer::too_deep) return refuse(Obstacle::too_deep);
    node.taken = answer == PathFinder::Answer::found && visitor_->takes_items_of(Path{paths_.steps()});
    return true;
  }

  /// Hands the items from `first` over to the visitor, and drops them.
  [[nodiscard]] bool deliver(std::size_t first, Fate fate) {
    auto& list = stack_[first - 1];
    if (paths_.find(stack_, program_.marks(), first - 1) != PathFinder::Answer::found) return refuse(Obstacle::other_run);
    auto& steps = paths_.steps();
    steps.push_back({});
    for (auto& item : from(first)) {
      steps.back().index = Assembler::node_of(list).size;
      if (auto const obstacle = Assembler::take(list, item, fate); obstacle != Obstacle::none) return refuse(obstacle);
      delivered_ = true;
      if (auto taken = visitor_->item(Path{steps}, item); !taken) {
        error_ = std::move(taken.error());
        return false;
      }
      item = Value{};  // before the next, so that no more is alive than need be
    }
    stack_.resize(first);
    return true;
  }

  [[nodiscard]] bool put() {
    auto const fetches = reuse_->fetches(in_.number);
    if (fetches == 0) return true;
    // What was put before and is gone had its last fetch: nobody asks for what comes there now.
    if (!in_.is_first && !memo_.has(in_.number)) return true;
    return memo_.put(in_.number, stack_.back(), fetches, store()) || refuse(Obstacle::too_much);
  }
  [[nodiscard]] bool get() {
    if (!memo_.has(in_.number)) return refuse(Obstacle::other_run);
    return fetch(memo_.fetch(in_.number, store()));
  }
  [[nodiscard]] bool fetch(Value value) {
    if (value.taken_items() != 0) {
      return program_.refuse(in_, " of a list whose items were handed out one by one; expected it in one place only");
    }
    Assembler::seal(value);
    return push(std::move(value));
  }

  /// What is dropped may still be in the memo, and is no longer in a place of its own.
  [[nodiscard]] bool drop() {
    for (auto const& value : from(program_.height())) Assembler::seal(value);
    stack_.resize(program_.height());
    return true;
  }

  [[nodiscard]] bool stop() {
    root_ = std::move(stack_.back());
    Assembler::seal(root_);
    stack_.clear();
    memo_.clear(store());
    over_ = true;
    return true;
  }

  [[nodiscard]] bool refuse(Obstacle obstacle) { return program_.refuse(in_, describe(obstacle, store().limit())); }
  [[nodiscard]] bool refuse_key(std::size_t first) {
    auto bad = first;
    while (Assembler::is_key(stack_[bad])) bad += 2;
    return program_.refuse(in_, describe_key(stack_[bad]));
  }

  Program program_;
  Reuse const* reuse_;
  Visitor* visitor_;
  Instruction in_;
  Assembler assembler_;
  std::vector<Value> stack_;
  Memo memo_;
  PathFinder paths_;
  std::uint64_t containers_ = 0;
  Value root_;
  std::optional<Error> error_;
  bool delivered_ = false;
  bool over_ = false;
};

Machine::Machine(ByteSource& bytes, std::string name, Reuse const& reuse, Visitor& visitor)
    : impl_{std::make_unique<Impl>(bytes, std::move(name), reuse, visitor)} {}
Machine::Machine(Machine&&) noexcept = default;
Machine& Machine::operator=(Machine&&) noexcept = default;
Machine::~Machine() = default;

Result<bool> Machine::advance() { return impl_->advance(); }
Value const& Machine::root() const noexcept { return impl_->root(); }
std::uint64_t Machine::offset() const noexcept { return impl_->offset(); }
void Machine::set_max_retained_bytes(std::uint64_t bytes) noexcept { impl_->store().set_limit(bytes); }
std::uint64_t Machine::retained_nodes() const noexcept { return impl_->store().nodes(); }
std::uint64_t Machine::retained_bytes() const noexcept { return impl_->store().bytes(); }

}  // namespace headroom::trace::pickle
