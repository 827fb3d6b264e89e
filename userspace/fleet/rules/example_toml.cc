// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/rules/example_toml.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cw::fleet {

void ExampleToml::Add(absl::string_view key, const std::string& value, absl::string_view doc) {
  if (!doc.empty()) absl::StrAppendFormat(&text_, "\n# %s\n", doc);
  absl::StrAppendFormat(&text_, "#%s = %s\n", key, value);
}

std::string ExampleToml::Text(absl::string_view key, std::string value, config::TextRule, absl::string_view doc) {
  Add(key, absl::StrFormat("\"%s\"", value), doc);
  return value;
}

std::vector<std::string> ExampleToml::Texts(absl::string_view key, std::vector<std::string> value, config::TextRule,
                                            absl::string_view doc) {
  Add(key, value.empty() ? "[]" : absl::StrFormat("[\"%s\"]", absl::StrJoin(value, "\", \"")), doc);
  return value;
}

bool ExampleToml::Flag(absl::string_view key, bool value, absl::string_view doc) {
  Add(key, value ? "true" : "false", doc);
  return value;
}

int64_t ExampleToml::Integer(absl::string_view key, int64_t value, config::IntegerRange, absl::string_view doc) {
  Add(key, absl::StrFormat("%d", value), doc);
  return value;
}

std::optional<int64_t> ExampleToml::IntegerOr(absl::string_view key, std::optional<int64_t> value,
                                              absl::string_view word, config::IntegerRange, absl::string_view doc) {
  Add(key, value ? absl::StrFormat("%d", *value) : absl::StrFormat("\"%s\"", word), doc);
  return value;
}

double ExampleToml::Real(absl::string_view key, double value, config::RealRange, absl::string_view doc) {
  Add(key, absl::StrFormat("%g", value), doc);
  return value;
}

absl::Duration ExampleToml::Duration(absl::string_view key, absl::Duration value, config::DurationRange,
                                     absl::string_view doc) {
  Add(key, "\"" + absl::FormatDuration(value) + "\"", doc);
  return value;
}

size_t ExampleToml::Choice(absl::string_view key, size_t value, const std::vector<std::string>& words,
                           absl::string_view doc) {
  Add(key, "\"" + words[value] + "\"", doc);
  return value;
}

void ExampleToml::BeginTable(absl::string_view key, absl::string_view doc) {
  tables_.emplace_back(key);
  text_ += "\n";
  if (!doc.empty()) absl::StrAppendFormat(&text_, "# %s\n", doc);
  absl::StrAppendFormat(&text_, "[%s]\n", absl::StrJoin(tables_, "."));
}

}  // namespace cw::fleet
