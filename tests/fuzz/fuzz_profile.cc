// SPDX-License-Identifier: Apache-2.0
// Any bytes as the memory of a profiler: no read outside of it, everything stays bounded, and every answer can be made.
// The input is a list of words to be put somewhere into the memory, with looks at it in between: a memory of zeros is
// reset to zeros where it was written, because it is too large to be cleared for each input.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "userspace/profile/profiles.h"

namespace {

constexpr size_t kPatch = 3 + 8;  // where, what

void Require(bool holds) {
  if (!holds) abort();
}

// Most of the memory is pools and ring: small offsets into each are reached more easily than by 24 random bits.
size_t Where(const uint8_t* bytes) {
  const size_t at = static_cast<size_t>(bytes[1]) | static_cast<size_t>(bytes[2]) << 8;
  switch (bytes[0] % 8) {
    case 0:
      return at % 512;
    case 1:
      return offsetof(cw_prof_shared, comm) + at % 1024;
    case 2:
      return offsetof(cw_prof_shared, coll) + at % 1024;
    case 3:
      return offsetof(cw_prof_shared, op) + at % 2048;
    case 4:
      return offsetof(cw_prof_shared, step) + at % 512;
    case 5:
      return offsetof(cw_prof_shared, net) + at % 512;
    case 6:
      return offsetof(cw_prof_shared, ring) + at % 4096;
    default:
      return at * 128;
  }
}

// Completes the next record, so that what was put into it is read.
void Complete(cw_prof_shared& shared, std::vector<size_t>& dirty) {
  cw_prof_record& record = shared.ring[shared.head % CW_PROF_RING];
  record.seq = 2 * shared.head + 2;
  ++shared.head;
  dirty.push_back(static_cast<size_t>(reinterpret_cast<uint8_t*>(&record.seq) - reinterpret_cast<uint8_t*>(&shared)));
  dirty.push_back(offsetof(cw_prof_shared, head));
}

void Look(cw::profile::Profiles& profiles, int64_t now_ns) {
  profiles.Poll(now_ns, [](const cw::profile::Stall&) {});
  for (const cw::profile::ChunkOp& op : profiles.TakeChunks()) {
    Require(op.posted <= cw::profile::kMostChunks && op.stamps.size() <= CW_PROF_STAMPS);
    profiles.AddDelays({.connection = op.connection,
                        .coll = op.coll,
                        .handle = op.handle,
                        .qpn = op.qpn,
                        .delay_ns = {1, 2, 3},
                        .bound_ns = 1});
  }
  (void)profiles.Jobs({}, now_ns);
  (void)profiles.Collectives({}, now_ns);
  (void)profiles.NewestOn(0, 0x21, now_ns);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto shared = std::make_unique<cw_prof_shared>();
  std::vector<size_t> dirty;
  {
    cw::profile::Profiles profiles({.stall_ns = 1000, .slow_factor = 2});
    profiles.Add(1, 7, 0, std::make_unique<cw::profile::Memory>(shared.get()));
    int64_t now_ns = 1;
    for (size_t i = 0; i + kPatch <= size && dirty.size() < 512; i += kPatch) {
      const size_t at = Where(data + i) & ~size_t{7};
      if (at + 8 > sizeof(*shared)) continue;
      std::memcpy(reinterpret_cast<uint8_t*>(shared.get()) + at, data + i + 3, 8);
      dirty.push_back(at);
      if (data[i] >= 0xc0) Complete(*shared, dirty);
      if (data[i] >= 0xf8) Look(profiles, now_ns += 400'000'000);
    }
    Look(profiles, now_ns += 400'000'000);
    Look(profiles, now_ns += 20'000'000'000);
    Require(profiles.Collectives({}, now_ns).collectives_size() <= 100);
  }
  for (size_t at : dirty) std::memset(reinterpret_cast<uint8_t*>(shared.get()) + at, 0, 8);
  return 0;
}
