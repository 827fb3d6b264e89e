// SPDX-License-Identifier: Apache-2.0
//
// A visitor that prints a file to begin with: every key with what it means, commented out, since it is the default.
// Elements of arrays are left out. One thread.
#pragma once

#include <string>
#include <vector>

#include "userspace/config/schema.h"

namespace cw::fleet {

class ExampleToml final : public config::Visitor {
 public:
  explicit ExampleToml(std::string head) : text_(std::move(head)) {}
  std::string Take() { return std::move(text_); }

  std::string Text(absl::string_view key, std::string value, config::TextRule rule, absl::string_view doc) override;
  std::vector<std::string> Texts(absl::string_view key, std::vector<std::string> value, config::TextRule rule,
                                 absl::string_view doc) override;
  bool Flag(absl::string_view key, bool value, absl::string_view doc) override;
  int64_t Integer(absl::string_view key, int64_t value, config::IntegerRange range, absl::string_view doc) override;
  std::optional<int64_t> IntegerOr(absl::string_view key, std::optional<int64_t> value, absl::string_view word,
                                   config::IntegerRange range, absl::string_view doc) override;
  double Real(absl::string_view key, double value, config::RealRange range, absl::string_view doc) override;
  absl::Duration Duration(absl::string_view key, absl::Duration value, config::DurationRange range,
                          absl::string_view doc) override;
  size_t Choice(absl::string_view key, size_t value, const std::vector<std::string>& words,
                absl::string_view doc) override;
  void BeginTable(absl::string_view key, absl::string_view doc) override;
  void EndTable() override { tables_.pop_back(); }
  size_t BeginArray(absl::string_view, size_t, absl::string_view) override { return 0; }
  std::string BeginElement(size_t) override { return ""; }
  void EndElement() override {}
  void EndArray() override {}

 private:
  void Add(absl::string_view key, const std::string& value, absl::string_view doc);
  std::string text_;
  std::vector<std::string> tables_;
};

}  // namespace cw::fleet
