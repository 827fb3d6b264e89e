// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/log_output.h"

#include <spdlog/sinks/base_sink.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "userspace/commandline/log_lines.h"

namespace cw::agent {
namespace {

using telemetry::Severity;

constexpr size_t kLongestField = 64;  // of a name, as journald takes them

spdlog::level::level_enum Level(config::LogLevel level) {
  switch (level) {
    case config::LogLevel::kError:
      return spdlog::level::err;
    case config::LogLevel::kWarn:
      return spdlog::level::warn;
    case config::LogLevel::kDebug:
      return spdlog::level::debug;
    case config::LogLevel::kInfo:
      break;
  }
  return spdlog::level::info;
}

// syslog's numbers.
const char* Priority(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
    case spdlog::level::err:
      return "3";
    case spdlog::level::warn:
      return "4";
    case spdlog::level::info:
      return "6";
    default:
      return "7";
  }
}

Severity SeverityOf(spdlog::level::level_enum level) {
  return level >= spdlog::level::err    ? Severity::kAlert
         : level == spdlog::level::warn ? Severity::kNotice
                                        : Severity::kInfo;
}

std::string FieldName(const std::string& evidence) {
  std::string name = "CW_";
  for (const char c : evidence) name += absl::ascii_isalnum(c) ? absl::ascii_toupper(c) : '_';
  return name.substr(0, kLongestField);
}

class StructuredSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  StructuredSink(LogOutput output, const std::string& journal_socket) : output_(output) {
    if (output != LogOutput::kJournal) return;
    address_.sun_family = AF_UNIX;
    if (journal_socket.size() >= sizeof(address_.sun_path)) return;
    std::memcpy(address_.sun_path, journal_socket.c_str(), journal_socket.size() + 1);
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  }
  ~StructuredSink() override {
    if (fd_ >= 0) close(fd_);
  }

  void Write(const telemetry::Event& event) {
    const std::lock_guard lock(mutex_);
    output_ == LogOutput::kJson ? ToStderr(telemetry::ToJsonLine(event)) : ToJournal(FieldsOf(event), event.text);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string text(message.payload.data(), message.payload.size());
    if (output_ == LogOutput::kJournal)
      return ToJournal({{"MESSAGE", text}, {"PRIORITY", Priority(message.level)}, {"SYSLOG_IDENTIFIER", "cwagentd"}},
                       text);
    telemetry::Event line{.severity = SeverityOf(message.level), .text = text};
    line.time_unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(message.time.time_since_epoch()).count();
    ToStderr(telemetry::ToJsonLine(line));
  }
  void flush_() override {}

 private:
  // A journal that is full or away must not hold the agent up.
  void ToJournal(const JournalFields& fields, const std::string& text) {
    const std::string datagram = JournalDatagram(fields);
    const ssize_t sent = fd_ < 0 ? -1
                                 : sendto(fd_, datagram.data(), datagram.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                                          reinterpret_cast<const sockaddr*>(&address_), sizeof(address_));
    if (sent < 0) ToStderr(text + "\n");
  }
  static void ToStderr(const std::string& line) { (void)std::fwrite(line.data(), 1, line.size(), stderr); }

  const LogOutput output_;
  sockaddr_un address_{};
  int fd_ = -1;
};

std::shared_ptr<StructuredSink>& Sink() {
  static auto& sink = *new std::shared_ptr<StructuredSink>;  // null: text
  return sink;
}

}  // namespace

LogOutput ChooseLogOutput(config::LogFormat format, const std::string& journal_stream) {
  if (format == config::LogFormat::kJson) return LogOutput::kJson;
  struct stat info {};
  const bool journal = format == config::LogFormat::kAuto && fstat(STDERR_FILENO, &info) == 0 &&
                       journal_stream == absl::StrCat(info.st_dev, ":", info.st_ino);
  return journal ? LogOutput::kJournal : LogOutput::kText;
}

void OpenLog(LogOutput output, config::LogLevel level, const std::string& journal_socket) {
  if (output != LogOutput::kText) {
    Sink() = std::make_shared<StructuredSink>(output, journal_socket);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("cwagentd", Sink()));
  }
  if (output == LogOutput::kText) commandline::LogLines("[%Y-%m-%d %H:%M:%S.%e] [%^%l%$] %*");
  SetLogLevel(level);
}

void SetLogLevel(config::LogLevel level) { spdlog::set_level(Level(level)); }

void LogEvent(const telemetry::Event& event) {
  const spdlog::level::level_enum level =
      event.severity == Severity::kAlert ? spdlog::level::warn : spdlog::level::info;
  if (Sink() == nullptr) return spdlog::log(level, "{}", event.text);
  if (spdlog::should_log(level)) Sink()->Write(event);
}

JournalFields FieldsOf(const telemetry::Event& event) {
  JournalFields fields = {{"MESSAGE", event.text},
                          {"PRIORITY", event.severity == Severity::kAlert    ? "4"
                                       : event.severity == Severity::kNotice ? "5"
                                                                             : "6"},
                          {"SYSLOG_IDENTIFIER", "cwagentd"},
                          {"CW_EVENT", event.type}};
  if (event.seq != 0) fields.emplace_back("CW_SEQ", absl::StrCat(event.seq));
  if (!event.peer.empty()) fields.emplace_back("CW_PEER", event.peer);
  if (!event.flow.empty()) fields.emplace_back("CW_FLOW", event.flow);
  if (event.slot >= 0) fields.emplace_back("CW_PATH", absl::StrCat(event.slot));
  if (event.to_slot >= 0) fields.emplace_back("CW_TO_PATH", absl::StrCat(event.to_slot));
  if (event.dry) fields.emplace_back("CW_DRY", "1");
  for (const auto& [name, value] : event.evidence) fields.emplace_back(FieldName(name), value);
  return fields;
}

std::string JournalDatagram(const JournalFields& fields) {
  std::string out;
  for (const auto& [name, value] : fields) {
    if (value.find('\n') == std::string::npos) {
      absl::StrAppend(&out, name, "=", value, "\n");
      continue;
    }
    absl::StrAppend(&out, name, "\n");
    for (int byte = 0; byte < 8; ++byte) out += static_cast<char>(value.size() >> (8 * byte) & 0xff);
    absl::StrAppend(&out, value, "\n");
  }
  return out;
}

}  // namespace cw::agent
