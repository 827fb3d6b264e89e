// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of observations: no read outside of them, no overflow, and whatever is accepted can be decided.
// Check sums would keep the fuzzer out, so half of the inputs are payloads that get theirs here.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>

#include "userspace/control/contention_rules.h"
#include "userspace/replay/replay.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

void ReadAll(std::string bytes) {
  const auto reader = cw::replay::Reader::Read(std::make_unique<std::istringstream>(std::move(bytes)), "input");
  if (!reader.ok()) return;
  (void)cw::replay::Replay(**reader, {}, [](const cw::replay::ReplayedWindow&) {});
}

// What is accepted encodes to the very bytes that it came from.
void Window(const std::string& payload) {
  const auto window = cw::replay::DecodeWindow(payload);
  if (!window.ok()) return;
  Require(cw::replay::Encode(window->seen, window->decided) == payload);
  cw::control::ContentionState state({}, 1);
  for (int again = 0; again < 8; ++again) (void)cw::control::DecideMoves(window->seen, state);
  Require(cw::control::Restore(cw::control::Snapshot(state)).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string payload(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      ReadAll(payload);
      break;
    case 1:
      Window(payload);
      break;
    case 2:
      (void)cw::control::Restore(payload);
      break;
    default:
      ReadAll(cw::replay::FileHead() + cw::replay::Record(cw::replay::kHead, payload) +
              cw::replay::Record(cw::replay::kWindow, payload));
  }
  return 0;
}
