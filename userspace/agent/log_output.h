// SPDX-License-Identifier: Apache-2.0
//
// How lines of the log leave the process: as text, as one JSON object a line, or to systemd's journal with fields, so
// that `journalctl -u cwfabric-agent CW_EVENT=path CW_PEER=node17` finds them. An event's fields are CW_EVENT (its
// type), CW_SEQ, CW_PEER, CW_FLOW, CW_PATH, CW_TO_PATH, CW_DRY, and CW_ with the name of each piece of evidence.
// Source: systemd's "Native Journal Protocol". Thread rule: OpenLog before other threads; LogEvent any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "userspace/config/config.h"
#include "userspace/telemetry/event_log.h"

namespace cw::agent {

enum class LogOutput { kText, kJson, kJournal };

inline constexpr char kJournalSocket[] = "/run/systemd/journal/socket";

// kAuto is the journal where systemd says that stderr goes there. journal_stream: $JOURNAL_STREAM, "" when it is not
// set.
LogOutput ChooseLogOutput(config::LogFormat format, const std::string& journal_stream);

void OpenLog(LogOutput output, config::LogLevel level, const std::string& journal_socket = kJournalSocket);
void SetLogLevel(config::LogLevel level);  // any thread

// One line of the log. What cannot be sent to the journal is written to stderr as text.
void LogEvent(const telemetry::Event& event);

// Pure parts.
using JournalFields = std::vector<std::pair<std::string, std::string>>;
JournalFields FieldsOf(const telemetry::Event& event);
std::string JournalDatagram(const JournalFields& fields);

}  // namespace cw::agent
