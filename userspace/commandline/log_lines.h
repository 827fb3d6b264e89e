// SPDX-License-Identifier: Apache-2.0
//
// Lines of a daemon's log on standard error: a record is one line, whatever hosts, people and services put into it.
// Thread rule: once, at the start.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "spdlog/pattern_formatter.h"
#include "spdlog/spdlog.h"
#include "userspace/model/printable.h"

namespace cw::commandline {

class PrintablePayload final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string text = Printable({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<PrintablePayload>(); }
};

// Of the default logger. pattern: spdlog's, with %* for what is said.
inline void LogLines(const std::string& pattern) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintablePayload>('*').set_pattern(pattern);
  spdlog::set_formatter(std::move(formatter));
}

}  // namespace cw::commandline
