#include "dump/document.hpp"

#include <headroom/post_mortem_reader.hpp>

#include "dump/rows.hpp"

namespace headroom::dump {
namespace {

using nlohmann::json;

constexpr std::size_t kMostDepth = 12;                         // dumps are 7 deep
constexpr std::size_t kMostNodes = std::size_t{1} << 20;       // of the tree; a dump of all ledgers and hooks has some 100,000
constexpr std::size_t kMostTextBytes = std::size_t{64} << 10;  // the longest text of a dump has 16 KiB

class Parser final : public nlohmann::json_sax<json> {
public:
  Parser(std::string_view text, std::string_view name) noexcept : text_{text}, name_{name} {}

  bool null() override {
    return scalar([&] { row_.add_null(); }, [] { return json{}; });
  }
  bool boolean(bool value) override {
    return scalar([&] { row_.add_other(); }, [&] { return json(value); });
  }
  bool number_integer(number_integer_t value) override {
    return number([&] { row_.add_other(); }, json(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number([&] { row_.add_number(value); }, json(value));
  }
  bool number_float(number_float_t value, string_t const& /*digits*/) override {
    return number([&] { row_.add_other(); }, json(value));
  }
  bool string(string_t& value) override {
    if (value.size() > kMostTextBytes) {
      return stop("found a text of " + std::to_string(value.size()) + " bytes, expected at most " +
                  std::to_string(kMostTextBytes));
    }
    return scalar([&] { row_.add_text(value); }, [&] { return json(std::move(value)); });
  }
  bool binary(binary_t& /*value*/) override { return stop("found binary data, expected JSON"); }  // JSON has none

  bool start_object(std::size_t /*elements*/) override { return open(json::object()); }
  bool key(string_t& name) override {
    commit();
    if (in_row_) return stop("found an object in a row of a table, expected numbers and words");
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*elements*/) override {
    if (table_ == nullptr) {
      const bool is_table = stack_.size() == 2 && key_ == "rows" && (section_ == "live" || section_ == "events");
      if (!open(json::array())) return false;
      if (is_table) table_ = section_ == "live" ? &Parser::end_live_row : &Parser::end_event_row;
      return true;
    }
    commit();
    if (in_row_) return stop("found an array in a row of a table, expected numbers and words");
    in_row_ = true;
    row_.clear();
    return true;
  }
  bool end_array() override {
    commit();
    if (in_row_) {
      in_row_ = false;
      return (this->*table_)();
    }
    table_ = nullptr;
    return close();
  }

  bool parse_error(std::size_t position, std::string const& last_token, nlohmann::detail::exception const& error) override {
    static_cast<void>(last_token);
    // The end of the text counts as one more character that was read.
    if (position <= text_.size()) {
      const std::string_view what{error.what()};
      const std::size_t colon = what.find(": ");
      return stop_at(position, std::string{colon == std::string_view::npos ? what : what.substr(colon + 2)});
    }
    truncated_ = true;
    // `12` may have been `123`: only a character behind it says that a number is whole.
    constexpr std::string_view kNumberBytes = "0123456789+-.eE";
    if (!text_.empty() && kNumberBytes.find(text_.back()) != std::string_view::npos) {
      pending_.reset();
    } else {
      commit();
    }
    drop_unfinished_element();
    return false;
  }

  [[nodiscard]] Result<Document> finish(bool good) && {
    if (!problem_.empty() || (!good && !truncated_))
      return fail(ErrorKind::parse, Layer::request, std::string{name_} + ": " + problem_);
    document_.truncated = truncated_;
    return std::move(document_);
  }

private:
  template <class Row, class Make>
  bool scalar(Row const& to_row, Make const& make) {
    commit();
    if (table_ != nullptr) {
      if (!in_row_) return stop("found a value between the rows of a table, expected rows");
      to_row();
      return true;
    }
    return put(make()) != nullptr;
  }
  // Held back until the next event: see parse_error.
  template <class Row>
  bool number(Row const& to_row, json value) {
    commit();
    if (table_ != nullptr) return scalar(to_row, [] { return json{}; });
    pending_ = std::move(value);
    return true;
  }
  void commit() {
    if (!pending_) return;
    json value = std::move(*pending_);
    pending_.reset();
    static_cast<void>(put(std::move(value)));
  }

  json* put(json value) {
    if (++nodes_ > kMostNodes) {
      stop("found more than " + std::to_string(kMostNodes) + " values outside of the tables of live allocations and events");
      return nullptr;
    }
    if (stack_.empty()) {
      document_.state = std::move(value);
      return &document_.state;
    }
    json& into = *stack_.back();
    if (into.is_array()) {
      into.push_back(std::move(value));
      return &into.back();
    }
    return &(into[key_] = std::move(value));
  }
  bool open(json container) {
    commit();
    if (in_row_ || table_ != nullptr) return stop("found an object in a table, expected rows of numbers and words");
    if (stack_.size() >= kMostDepth) return stop("found values nested deeper than " + std::to_string(kMostDepth));
    if (stack_.size() == 1) section_ = key_;
    json* const there = put(std::move(container));
    if (there == nullptr) return false;
    stack_.push_back(there);
    return true;
  }
  bool close() {
    commit();
    stack_.pop_back();
    return true;
  }
  void drop_unfinished_element() {
    for (json* const open_one : stack_) {
      if (!open_one->is_array() || open_one == stack_.back()) continue;
      open_one->erase(open_one->size() - 1);  // all that is open further inside goes with it
      return;
    }
  }

  bool end_live_row() {
    if (document_.live.size() == kMostDumpAllocations) return stop("found more rows than a dump can have");
    const std::string problem = take_live_row(row_, document_.live.emplace_back());
    return check("live", problem, document_.live.size());
  }
  bool end_event_row() {
    if (document_.events.size() == kMostDumpEvents) return stop("found more rows than a dump can have");
    const std::string problem = take_event_row(row_, document_.events.emplace_back());
    return check("events", problem, document_.events.size());
  }
  bool check(char const* table, std::string const& problem, std::size_t row) {
    return problem.empty() || stop(std::string{table} + ", row " + std::to_string(row) + ", " + problem);
  }

  bool stop(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }
  bool stop_at(std::size_t byte, std::string const& problem) { return stop("byte " + std::to_string(byte) + ": " + problem); }

  std::string_view text_;
  std::string_view name_;
  Document document_;
  std::vector<json*> stack_;  // open containers; the last element of an array, and the newest value of an object, do not move
  std::string key_;
  std::string section_;  // key of the open container one below the top
  std::optional<json> pending_;
  bool (Parser::*table_)() = nullptr;
  bool in_row_ = false;
  Row row_;
  std::size_t nodes_ = 0;
  bool truncated_ = false;
  std::string problem_;
};

}  // namespace

Result<Document> parse_document(std::string_view text, std::string_view name) {
  Parser parser{text, name};
  const bool good = json::sax_parse(text.begin(), text.end(), &parser);
  return std::move(parser).finish(good);
}

}  // namespace headroom::dump
