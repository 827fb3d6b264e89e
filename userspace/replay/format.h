// SPDX-License-Identifier: Apache-2.0
//
// The file of observations. Little-endian.
//   file:   8 bytes "CWOBSRV\n", u32 version, then records
//   record: u32 kind, u32 bytes, u32 CRC-32 of kind, bytes and payload, payload
//   kind 1: head, the first record and no other: host, agent's version, time, rules, and all that the rule remembered
//   kind 2: one decision window: the observation, and what was decided
// A file begins with the rule's memory, so each can be decided again without those before it.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/control/contention.h"

namespace cw::replay {

inline constexpr char kMagic[] = "CWOBSRV\n";
inline constexpr uint32_t kVersion = 5;
inline constexpr size_t kFileHead = 12;
inline constexpr size_t kRecordHead = 12;
inline constexpr uint32_t kMostRecordBytes = 256u << 20;
enum RecordKind : uint32_t { kHead = 1, kWindow = 2 };

struct Head {
  std::string host;
  std::string version;  // of the agent
  int64_t started_unix_ns = 0;
  std::string memory;  // control::Snapshot
};

struct Window {
  control::Observation seen;
  control::Decision decided;
};

std::string FileHead();
std::string Record(RecordKind kind, const std::string& payload);
uint32_t RecordCrc(uint32_t kind, absl::string_view payload);

std::string Encode(const Head& head);
std::string Encode(const control::Observation& seen, const control::Decision& decided);
std::string Encode(const control::Decision& decided);
// InvalidArgument with the byte of the payload that makes no sense.
absl::StatusOr<Head> DecodeHead(absl::string_view payload);
absl::StatusOr<Window> DecodeWindow(absl::string_view payload);

}  // namespace cw::replay
