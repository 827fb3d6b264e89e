// SPDX-License-Identifier: Apache-2.0
#include "userspace/config/reader.h"

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cw::config {
namespace {

constexpr size_t kMaxFaults = 20;

struct Place {
  uint32_t line = 1;
  uint32_t column = 1;
  bool operator<(const Place& other) const { return std::tie(line, column) < std::tie(other.line, other.column); }
};

Place PlaceOf(const toml::source_region& source) {
  if (source.begin.line == 0) return {};
  return {source.begin.line, source.begin.column};
}

// Levenshtein distance.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string Suggestion(const std::string& unknown, const std::set<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, unknown.size() / 3) + 1;
  for (const std::string& name : known) {
    if (const size_t distance = Distance(unknown, name); distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  if (!best.empty()) return absl::StrFormat("did you mean \"%s\"?", best);
  return absl::StrFormat("known here: %s", absl::StrJoin(known, ", "));
}

class Reader final : public Visitor {
 public:
  Reader(absl::string_view file, const toml::table& root) : file_(file) { scopes_.push_back({&root, "", {}, {}}); }

  std::string Text(absl::string_view key, std::string value, TextRule rule, absl::string_view) override {
    const toml::node* node = Find(key);
    if (node == nullptr) return value;
    const auto* text = node->as_string();
    if (text == nullptr) return Wrong(*node, key, "text in quotes", value);
    if (const std::string wanted = Violation(rule, text->get()); !wanted.empty()) {
      return Wrong(*node, key, wanted, value);
    }
    return text->get();
  }

  std::vector<std::string> Texts(absl::string_view key, std::vector<std::string> value, TextRule rule,
                                 absl::string_view) override {
    const toml::node* node = Find(key);
    if (node == nullptr) return value;
    const toml::array* array = node->as_array();
    if (array == nullptr) return Wrong(*node, key, "a list of texts, such as [\"a\", \"b\"]", value);
    std::vector<std::string> texts;
    for (const toml::node& element : *array) {
      const auto* text = element.as_string();
      const std::string wanted = text == nullptr ? "text in quotes" : Violation(rule, text->get());
      if (!wanted.empty()) return Wrong(element, key, wanted, value);
      texts.push_back(text->get());
    }
    return texts;
  }

  bool Flag(absl::string_view key, bool value, absl::string_view) override {
    const toml::node* node = Find(key);
    if (node == nullptr) return value;
    const auto* flag = node->as_boolean();
    return flag == nullptr ? Wrong(*node, key, "true or false", value) : flag->get();
  }

  int64_t Integer(absl::string_view key, int64_t value, IntegerRange range, absl::string_view) override {
    const toml::node* node = Find(key);
    if (node == nullptr) return value;
    const auto* number = node->as_integer();
    if (number == nullptr || number->get() < range.min || number->get() > range.max) {
      return Wrong(*node, key, absl::StrFormat("a whole number from %d to %d", range.min, range.max), value);
    }
    return number->get();
  }

  std::optional<int64_t> IntegerOr(absl::string_view key, std::optional<int64_t> value, absl::string_view word,
                                   IntegerRange range, absl::string_view) override {
    const toml::node* node = Find(key);
    if (node == nullptr) return value;
    if (const auto* text = node->as_string(); text != nullptr && text->get() == std::string(word)) return std::nullopt;
    const auto* number = node->as_integer();
    if (number == nullptr || number->get() < range.min || number->get() > range.max) {
      return Wrong(*node, key, absl::StrFormat("\"%s\" or a whole number from %d to %d", word, range.min, range.max),
                   value);
    }
    return number->get();
  }

  double Real(absl::string_view key, double value, RealRange range, absl::string_view) override {
    const toml::node* node = Find(key);
    if (node == nullptr) return value;
    const std::optional<double> number = node->is_number() ? node->value<double>() : std::nullopt;
    // Written so that NaN is refused.
    if (!number || !(*number >= range.min && *number <= range.max)) {
      return Wrong(*node, key, absl::StrFormat("a number from %g to %g", range.min, range.max), value);
    }
    return *number;
  }

  absl::Duration Duration(absl::string_view key, absl::Duration value, DurationRange range,
                          absl::string_view) override {
    const toml::node* node = Find(key);
    if (node == nullptr) return value;
    const auto* text = node->as_string();
    absl::Duration duration;
    if (text == nullptr || !absl::ParseDuration(text->get(), &duration)) {
      return Wrong(*node, key, "a duration with its unit in quotes, such as \"500us\", \"1ms\", \"30s\" or \"10m\"",
                   value);
    }
    if (duration < range.min || duration > range.max) {
      return Wrong(
          *node, key,
          absl::StrFormat("a duration from %s to %s", absl::FormatDuration(range.min), absl::FormatDuration(range.max)),
          value);
    }
    return duration;
  }

  size_t Choice(absl::string_view key, size_t value, const std::vector<std::string>& words,
                absl::string_view) override {
    const toml::node* node = Find(key);
    if (node == nullptr) return value;
    const auto* text = node->as_string();
    const auto found = text == nullptr ? words.end() : std::find(words.begin(), words.end(), text->get());
    if (found == words.end()) {
      return Wrong(*node, key, absl::StrFormat("one of \"%s\"", absl::StrJoin(words, "\", \"")), value);
    }
    return static_cast<size_t>(found - words.begin());
  }

  void BeginTable(absl::string_view key, absl::string_view) override {
    const toml::node* node = Find(key);
    const toml::table* table = node == nullptr ? nullptr : node->as_table();
    if (node != nullptr && table == nullptr) {
      Fault(PlaceOf(node->source()), absl::StrFormat("%s must be a table; write [%s]", Dotted(key), Dotted(key)));
    }
    scopes_.push_back({table, Dotted(key) + ".", {}, {}});
  }

  void EndTable() override {
    ReportUnknown();
    scopes_.pop_back();
  }

  size_t BeginArray(absl::string_view key, size_t, absl::string_view) override {
    const toml::node* node = Find(key);
    array_key_ = std::string(key);
    array_ = node == nullptr ? nullptr : node->as_array();
    const bool tables = array_ != nullptr && std::all_of(array_->begin(), array_->end(),
                                                         [](const toml::node& element) { return element.is_table(); });
    if (node != nullptr && !tables) {
      Fault(PlaceOf(node->source()), absl::StrFormat("%s must be a list of tables; write [[%s]]", key, key));
      array_ = nullptr;
    }
    return array_ == nullptr ? 0 : array_->size();
  }

  std::string BeginElement(size_t index) override {
    const toml::table* table = array_->get(index)->as_table();
    const std::string name = absl::StrFormat("%s[%d]", array_key_, index);
    const Place place = PlaceOf(table->source());
    places_[name] = place;
    scopes_.push_back({table, name + ".", {}, {}});
    return absl::StrFormat("%s:%d", file_, place.line);
  }

  void EndElement() override { EndTable(); }
  void EndArray() override {}

  void Complain(const std::string& dotted, const std::string& message) {
    std::string name = dotted;
    while (!name.empty() && places_.count(name) == 0) {
      const size_t dot = name.rfind('.');
      name = dot == std::string::npos ? "" : name.substr(0, dot);
    }
    Fault(name.empty() ? Place{} : places_[name], message);
  }

  absl::Status Finish() {
    if (faults_.empty()) return absl::OkStatus();
    std::vector<std::string> lines;
    for (const auto& [place, message] : faults_) {
      if (lines.size() == kMaxFaults) {
        lines.push_back(absl::StrFormat("%s: and %d more faults", file_, faults_.size() - kMaxFaults));
        break;
      }
      lines.push_back(absl::StrFormat("%s:%d:%d: %s", file_, place.line, place.column, message));
    }
    return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
  }

  void ReportUnknown() {
    const Scope& scope = scopes_.back();
    if (scope.table == nullptr) return;
    for (const auto& [key, node] : *scope.table) {
      const std::string name(key.str());
      if (scope.known.count(name) != 0) continue;
      Fault(PlaceOf(key.source()),
            absl::StrFormat("unknown key \"%s%s\"; %s", scope.prefix, name, Suggestion(name, scope.known)));
    }
  }

 private:
  struct Scope {
    const toml::table* table;  // null: not in the file
    std::string prefix;
    std::set<std::string> known;
    Place place;
  };

  std::string Dotted(absl::string_view key) const { return scopes_.back().prefix + std::string(key); }

  const toml::node* Find(absl::string_view key) {
    Scope& scope = scopes_.back();
    scope.known.insert(std::string(key));
    if (scope.table == nullptr) return nullptr;
    const toml::node* node = scope.table->get(std::string(key));
    if (node != nullptr) places_[Dotted(key)] = PlaceOf(node->source());
    return node;
  }

  template <typename T>
  T Wrong(const toml::node& node, absl::string_view key, const std::string& wanted, const T& value) {
    Fault(PlaceOf(node.source()), absl::StrFormat("%s must be %s", Dotted(key), wanted));
    return value;
  }

  void Fault(Place place, std::string message) { faults_.emplace(place, std::move(message)); }

  std::string file_;
  std::vector<Scope> scopes_;
  const toml::array* array_ = nullptr;  // arrays of tables do not nest in this schema
  std::string array_key_;
  std::map<std::string, Place> places_;
  std::multimap<Place, std::string> faults_;
};

// The first character beyond ASCII that is neither in a comment nor in a string of one line, or that comes behind a
// string of several lines; npos: there is none.
// toml++ 3.3 asks of some of them there whether they are spaces, and its answer is undefined.
size_t StrayCharacter(absl::string_view text) {
  char quote = 0;  // that ends the string; '#': in a comment
  bool strict = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const absl::string_view three = text.substr(i, 3);
    strict = strict || (quote == 0 && (three == "\"\"\"" || three == "'''"));
    if (strict && static_cast<unsigned char>(c) > 0x7f) return i;
    if (quote == 0 && (c == '"' || c == '\'' || c == '#')) {
      quote = c;
    } else if (c == '\n' || (c == quote && c != '#')) {
      quote = 0;
    } else if (quote == '"' && c == '\\') {
      ++i;
    } else if (quote == 0 && static_cast<unsigned char>(c) > 0x7f) {
      return i;
    }
  }
  return absl::string_view::npos;
}

absl::Status CheckCharacters(absl::string_view text, absl::string_view file) {
  const size_t at = StrayCharacter(text);
  if (at == absl::string_view::npos) return absl::OkStatus();
  const absl::string_view before = text.substr(0, at);
  const size_t line = before.rfind('\n');
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s:%d:%d: not TOML: characters beyond ASCII belong into quotes, on one line, or into comments", file,
      std::count(before.begin(), before.end(), '\n') + 1, line == absl::string_view::npos ? at + 1 : at - line));
}

}  // namespace

absl::Status ReadToml(absl::string_view text, absl::string_view file, const std::function<void(Visitor&)>& walk,
                      const std::function<void(const Complain&)>& check) {
  if (const absl::Status status = CheckCharacters(text, file); !status.ok()) return status;
  const toml::parse_result parsed = toml::parse(std::string(text), std::string(file));
  if (!parsed) {
    const Place place = PlaceOf(parsed.error().source());
    return absl::InvalidArgumentError(absl::StrFormat("%s:%d:%d: not TOML: %s", file, place.line, place.column,
                                                      std::string(parsed.error().description())));
  }
  Reader reader(file, parsed.table());
  walk(reader);
  reader.ReportUnknown();
  check([&](const std::string& dotted, const std::string& message) { reader.Complain(dotted, message); });
  return reader.Finish();
}

}  // namespace cw::config
