// SPDX-License-Identifier: Apache-2.0
// Any bytes as a ring file: opening and reading end, nothing is read outside, and what is written afterwards comes
// back. A second way in makes a ring of the input and then damages it, since chance finds no checksum.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "userspace/uplink/ring.h"

namespace {

using cw::uplink::Ring;

void Require(bool holds) {
  if (!holds) abort();
}

const std::string& Path() {
  static const std::string path = "/dev/shm/cw_fuzz_ring_" + std::to_string(getpid());
  return path;
}

uint64_t ReadAll(Ring& ring) {
  cw::uplink::RingSpot spot = ring.Find(INT64_MIN);
  uint64_t records = 0;
  bool lost = false;
  for (int rounds = 0;; ++rounds) {
    Require(rounds < 100);  // it has 16 blocks
    const auto before = spot;
    const auto read = ring.Read(spot, &lost);
    Require(read.ok());
    records += read->size();
    if (read->empty() && spot.sequence == before.sequence && spot.offset == before.offset) return records;
  }
}

void Place(const std::string& bytes, uint64_t at) {
  std::fstream file(Path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  unlink(Path().c_str());
  {
    auto ring = Ring::Open(Path(), Ring::kLeastBytes);
    Require(ring.ok());
    for (int i = 0; i < 3; ++i) Require((*ring)->Append(1, i, input).ok());
    Require(ReadAll(**ring) == 3);
  }
  // The input over it: at its start, and somewhere in it.
  Place(input, size == 0 ? 0 : data[0] * 64);
  auto ring = Ring::Open(Path(), Ring::kLeastBytes);
  Require(ring.ok());
  const uint64_t left = ReadAll(**ring);
  Require((*ring)->Append(2, 100, "new").ok());
  Require(ReadAll(**ring) >= 1 && ReadAll(**ring) <= left + 1);
  return 0;
}
