// SPDX-License-Identifier: Apache-2.0
#include "sync/clock_domain_reader.h"

namespace cw::sync {
namespace {

bool Read(clockid_t clock, int64_t& ns) {
  timespec t{};
  if (clock_gettime(clock, &t) != 0) return false;
  ns = int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  return true;
}

}  // namespace

std::optional<PairedRead> ReadPaired(clockid_t a, clockid_t b, int tries) {
  std::optional<PairedRead> best;
  for (int i = 0; i < tries; ++i) {
    PairedRead read;
    if (!Read(a, read.a_before_ns) || !Read(b, read.b_ns) || !Read(a, read.a_after_ns)) return std::nullopt;
    if (!best || read.a_after_ns - read.a_before_ns < best->a_after_ns - best->a_before_ns) best = read;
  }
  return best;
}

}  // namespace cw::sync
