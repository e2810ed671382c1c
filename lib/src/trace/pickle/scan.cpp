#include <new>
#include <vector>

#include "base/thrown_error.hpp"
#include "trace/pickle/machine.hpp"
#include "trace/pickle/program.hpp"

namespace headroom::trace::pickle {
namespace {

/// Runs a pickle with a stack that only knows which of its places holds a list or dict that was begun there.
class Scanner {
public:
  Scanner(ByteSource& bytes, std::string const& name) : program_{bytes, name} {}

  [[nodiscard]] Result<Reuse> run() {
    do {
      if (!program_.next(in_) || !carry_out()) return tl::unexpected{program_.error()};
    } while (in_.opcode != Opcode::stop);
    return std::move(reuse_);
  }

private:
  [[nodiscard]] bool carry_out() {
    switch (in_.opcode) {
      case Opcode::empty_list:
      case Opcode::empty_dict: return begin_container();
      case Opcode::list:
      case Opcode::dict: cut(in_.base); return begin_container();
      case Opcode::append:
      case Opcode::set_item: leave(stack_.size() - 1, Fate::single); return true;
      case Opcode::appends:
      case Opcode::set_items: leave(in_.base, Fate::batch); return true;
      case Opcode::stop: leave(0, Fate::root); return true;
      case Opcode::bin_get:
      case Opcode::long_bin_get:
        reuse_.add_fetch(in_.number);
        stack_.push_back(kNoContainer);
        return true;
      case Opcode::tuple1: stack_.back() = kNoContainer; return true;
      case Opcode::tuple2: cut(stack_.size() - 2); break;
      case Opcode::tuple3: cut(stack_.size() - 3); break;
      case Opcode::tuple: cut(in_.base); break;
      default: break;
    }
    if (program_.height() > stack_.size()) {
      stack_.push_back(kNoContainer);
    } else {
      cut(program_.height());
    }
    return true;
  }

  void cut(std::size_t height) { stack_.resize(height, kNoContainer); }

  [[nodiscard]] bool begin_container() {
    if (containers_ == kMaxContainers) {
      return program_.refuse(in_, " begins one container too many; expected at most " + std::to_string(kMaxContainers));
    }
    stack_.push_back(static_cast<std::uint32_t>(++containers_));
    return true;
  }

  /// What lies at `from` and above goes into a container. Keys with it: a list or dict that is one is refused by the second pass.
  void leave(std::size_t from, Fate fate) {
    for (auto i = from; i < stack_.size(); ++i) {
      if (stack_[i] != kNoContainer) reuse_.set_fate(stack_[i] - 1, fate);
    }
    cut(program_.height());
  }

  static constexpr std::uint32_t kNoContainer = 0;

  Program program_;
  Instruction in_;
  std::vector<std::uint32_t> stack_;  // 1 + the number of the container that began here
  std::uint64_t containers_ = 0;
  Reuse reuse_;
};

}  // namespace

Result<Reuse> scan(ByteSource& bytes, std::string const& name) {
  try {
    return Scanner{bytes, name}.run();
  } catch (std::bad_alloc const&) {
    return tl::unexpected{
        make_error(ErrorKind::io, Layer::request, words([&] { return name + ": not enough memory to read it"; }))};
  }
}

}  // namespace headroom::trace::pickle
