// SPDX-License-Identifier: Apache-2.0
//
// The visitors that print: the effective configuration as TOML, and the reference of all keys.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "userspace/config/change.h"
#include "userspace/config/config.h"
#include "userspace/config/schema.h"

namespace cw::config {
namespace {

std::string Quote(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      quoted += absl::StrFormat("\\u%04X", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string QuoteAll(const std::vector<std::string>& texts) {
  return "[" + absl::StrJoin(texts, ", ", [](std::string* out, const std::string& text) { *out += Quote(text); }) + "]";
}

// The shortest form that reads back as the same number and is a TOML float.
std::string RealText(double value) {
  std::string text;
  for (int digits = 1; digits <= 17; ++digits) {
    text = absl::StrFormat("%.*g", digits, value);
    if (std::stod(text) == value) break;
  }
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string DurationText(absl::Duration value) { return Quote(absl::FormatDuration(value)); }

// Values in, the same values out; what is done with them is the subclass's.
class Printer : public Visitor {
 public:
  void BeginTable(absl::string_view key, absl::string_view doc) final {
    tables_.emplace_back(key);
    Table(absl::StrJoin(tables_, "."), doc);
  }
  void EndTable() final { tables_.pop_back(); }
  std::string Text(absl::string_view key, std::string value, TextRule rule, absl::string_view doc) final {
    const std::string wanted = Violation(rule, "\n");
    Key(key, Quote(value), wanted.empty() ? "text" : wanted, doc);
    return value;
  }
  std::vector<std::string> Texts(absl::string_view key, std::vector<std::string> value, TextRule rule,
                                 absl::string_view doc) final {
    Key(key, QuoteAll(value), "list, each " + Violation(rule, "\n"), doc);
    return value;
  }
  bool Flag(absl::string_view key, bool value, absl::string_view doc) final {
    Key(key, value ? "true" : "false", "true or false", doc);
    return value;
  }
  int64_t Integer(absl::string_view key, int64_t value, IntegerRange range, absl::string_view doc) final {
    Key(key, absl::StrFormat("%d", value), absl::StrFormat("%d to %d", range.min, range.max), doc);
    return value;
  }
  std::optional<int64_t> IntegerOr(absl::string_view key, std::optional<int64_t> value, absl::string_view word,
                                   IntegerRange range, absl::string_view doc) final {
    Key(key, value ? absl::StrFormat("%d", *value) : Quote(word),
        absl::StrFormat("\"%s\" or %d to %d", word, range.min, range.max), doc);
    return value;
  }
  double Real(absl::string_view key, double value, RealRange range, absl::string_view doc) final {
    Key(key, RealText(value), absl::StrFormat("%g to %g", range.min, range.max), doc);
    return value;
  }
  absl::Duration Duration(absl::string_view key, absl::Duration value, DurationRange range,
                          absl::string_view doc) final {
    Key(key, DurationText(value),
        absl::StrFormat("%s to %s", absl::FormatDuration(range.min), absl::FormatDuration(range.max)), doc);
    return value;
  }
  size_t Choice(absl::string_view key, size_t value, const std::vector<std::string>& words,
                absl::string_view doc) final {
    Key(key, Quote(words[value]), absl::StrJoin(words, ", "), doc);
    return value;
  }

 protected:
  virtual void Table(const std::string& name, absl::string_view doc) = 0;
  virtual void Key(absl::string_view key, const std::string& value, const std::string& range,
                   absl::string_view doc) = 0;
  std::string Dotted(absl::string_view key) const {
    return tables_.empty() ? std::string(key) : absl::StrCat(absl::StrJoin(tables_, "."), ".", key);
  }

 private:
  std::vector<std::string> tables_;  // from the outermost in
};

class TomlPrinter final : public Printer {
 public:
  size_t BeginArray(absl::string_view key, size_t size, absl::string_view) override {
    array_ = std::string(key);
    return size;
  }
  std::string BeginElement(size_t) override {
    absl::StrAppendFormat(&text_, "\n[[%s]]\n", array_);
    return "";
  }
  void EndElement() override {}
  void EndArray() override {}
  std::string Take() { return std::move(text_); }

 protected:
  void Table(const std::string& name, absl::string_view) override { absl::StrAppendFormat(&text_, "\n[%s]\n", name); }
  void Key(absl::string_view key, const std::string& value, const std::string&, absl::string_view) override {
    absl::StrAppendFormat(&text_, "%s = %s\n", key, value);
  }

 private:
  std::string text_;
  std::string array_;
};

// Heads and keys one after the other: each table of the schema once, elements of arrays as one example.
class SectionPrinter : public Printer {
 public:
  size_t BeginArray(absl::string_view key, size_t, absl::string_view doc) final {
    array_ = std::string(key);
    Head(absl::StrFormat("[[%s]]", key), doc);
    return 1;
  }
  std::string BeginElement(size_t) final { return ""; }
  void EndElement() final {}
  void EndArray() final { array_.clear(); }
  std::string Take() { return std::move(text_); }

 protected:
  // Behind what a key means.
  std::string WhenTaken(absl::string_view key) const {
    return TakenLive(array_.empty() ? Dotted(key) : array_) ? " Reloaded." : "";
  }
  void Table(const std::string& name, absl::string_view doc) final { Head(absl::StrFormat("[%s]", name), doc); }
  virtual void Head(const std::string& title, absl::string_view doc) = 0;

  std::string text_;

 private:
  std::string array_;
};

constexpr char kTop[] = "Stands before the first table.";

class ReferencePrinter final : public SectionPrinter {
 public:
  ReferencePrinter() { Head("Top of the file", kTop); }

 protected:
  void Key(absl::string_view key, const std::string& value, const std::string& range, absl::string_view doc) override {
    absl::StrAppendFormat(&text_, "| `%s` | `%s` | %s | %s%s |\n", key, value, range, doc, WhenTaken(key));
  }
  void Head(const std::string& title, absl::string_view doc) override {
    absl::StrAppendFormat(&text_, "%s### %s\n%s\n\n| key | default | values | meaning |\n|---|---|---|---|\n",
                          text_.empty() ? "" : "\n", title, doc);
  }
};

// A file of which every line is a comment: what stands there is the default, and uncommenting keeps it.
class ExamplePrinter final : public SectionPrinter {
 protected:
  void Key(absl::string_view key, const std::string& value, const std::string& range, absl::string_view doc) override {
    text_ += Comment(absl::StrFormat("%s Values: %s.%s", doc, range, WhenTaken(key)));
    absl::StrAppendFormat(&text_, "#%s = %s\n", key, value);
  }
  void Head(const std::string& title, absl::string_view doc) override {
    absl::StrAppendFormat(&text_, "\n%s#%s\n", Comment(std::string(doc)), title);
  }

 private:
  // Lines of at most 118 characters, each behind "# ".
  static std::string Comment(const std::string& text) {
    constexpr size_t kWidth = 116;
    std::string lines, line;
    for (const absl::string_view word : absl::StrSplit(text, ' ')) {
      if (!line.empty() && line.size() + 1 + word.size() > kWidth) {
        absl::StrAppendFormat(&lines, "# %s\n", line);
        line.clear();
      }
      absl::StrAppend(&line, line.empty() ? "" : " ", word);
    }
    return absl::StrCat(lines, "# ", line, "\n");
  }
};

class ManualPrinter final : public SectionPrinter {
 public:
  ManualPrinter() { Head("Top of the file", kTop); }

 protected:
  void Key(absl::string_view key, const std::string& value, const std::string& range, absl::string_view doc) override {
    absl::StrAppendFormat(&text_, ".TP\n\\fB%s\\fP = %s\n%s Values: %s.%s\n", Roff(key), Roff(value), Roff(doc),
                          Roff(range), WhenTaken(key));
  }
  void Head(const std::string& title, absl::string_view doc) override {
    absl::StrAppendFormat(&text_, ".SS \"%s\"\n%s\n", Roff(title), Roff(doc));
  }

 private:
  static std::string Roff(absl::string_view text) {
    std::string safe = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
    return !safe.empty() && (safe[0] == '.' || safe[0] == '\'') ? "\\&" + safe : safe;
  }
};

template <typename P>
std::string PrintDefaults() {
  P printer;
  Config defaults;
  Walk(printer, defaults);
  return printer.Take();
}

}  // namespace

std::string ToToml(const Config& config) {
  TomlPrinter printer;
  Config copy = config;  // a walk may write; this one does not
  Walk(printer, copy);
  return printer.Take();
}

std::string ReferenceMarkdown() { return PrintDefaults<ReferencePrinter>(); }

std::string ReferenceRoff() { return PrintDefaults<ManualPrinter>(); }

std::string ExampleToml() {
  return "# Configuration of cwagentd; cwagentd.toml(5) and docs/config.md. Every option with its default: a line that "
         "begins\n"
         "# with # and no blank behind it takes effect without the #. Check it: cwagentd --check-config --config "
         "FILE.\n" +
         PrintDefaults<ExamplePrinter>();
}

}  // namespace cw::config
