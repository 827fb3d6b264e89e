// SPDX-License-Identifier: Apache-2.0
// What host and virtual machine say to each other over the command channel: frames of a header and `length` bytes.
// Both ends run on the same machine type, so integers are in host order.
#pragma once

#include <cstdint>

namespace cw::vm {

enum class FrameKind : uint16_t {
  kReady = 1,     // guest: the command server is up (sent once, command 0)
  kRun = 2,       // host: run this line with /bin/sh; `command` is a number that the host has not used yet
  kInput = 3,     // host: bytes for the command's standard input
  kInputEnd = 4,  // host: end of standard input
  kSignal = 5,    // host: one byte, the signal for the command's process group
  kOutput = 6,    // guest: standard output and error, interleaved as written
  kExit = 7,      // guest: uint32_t exit code, 128 + signal when killed; the last frame of a command
};

struct FrameHeader {
  uint32_t command;
  FrameKind kind;
  uint16_t reserved;
  uint32_t length;
};
static_assert(sizeof(FrameHeader) == 12);

inline constexpr uint32_t kMaxFrame = 1 << 16;

}  // namespace cw::vm
