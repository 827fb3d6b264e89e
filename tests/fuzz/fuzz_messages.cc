// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of a message between agents: no read outside of it (AddressSanitizer), no overflow (UBSan). A
// body has one form only: what is accepted encodes to the very bytes that it came from.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "userspace/probe/messages.h"
#include "userspace/profile/chunks.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

// A copy that ends where the bytes end, so that one byte too far is seen.
absl::StatusOr<cw::probe::Body> DecodeExactly(const uint8_t* data, size_t size) {
  std::unique_ptr<uint8_t[]> exact(new uint8_t[size]);
  std::copy(data, data + size, exact.get());
  return cw::probe::DecodeBody({exact.get(), size});
}

// What is done with a peer's stamps: no overflow, and a delay only where both ends agree.
void MatchChunks(const cw::probe::ChunkArrivals& batch) {
  using cw::profile::ChunkMatcher;
  ChunkMatcher matcher;
  for (const cw::probe::ChunkArrival& a : batch.arrivals) {
    const cw::profile::ChunkKey key{.flow = {.dqpn = a.qpn}, .operation = a.operation};
    const cw::profile::ChunkOp own{.operation = a.operation, .posted = batch.arrivals[0].posted};
    if (a.number % 2 == 0) matcher.AddPosts(key.flow, own, {{a.number, 0, 1000}}, 0);
    matcher.AddArrival(key, a.posted, a.bytes, {a.number, a.fleet_ns, a.bound_ns}, 0);
  }
  for (const ChunkMatcher::Match& match : matcher.Take(ChunkMatcher::kSettleNs)) {
    for (int64_t ns : match.delay_ns) Require(ns >= 0 && ns <= ChunkMatcher::kMaxDelayNs);
    Require(match.bound_ns <= cw::probe::kMaxChunkBoundNs + 1000);
  }
  Require(matcher.size() <= batch.arrivals.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > CW_MSG_MAX) return 0;  // no datagram carries it
  const absl::StatusOr<cw::probe::Body> body = DecodeExactly(data, size);
  if (!body.ok()) {
    Require(absl::IsInvalidArgument(body.status()) || absl::IsUnimplemented(body.status()));
    return 0;
  }
  if (const auto* chunks = std::get_if<cw::probe::ChunkArrivals>(&*body)) MatchChunks(*chunks);
  const absl::StatusOr<std::vector<uint8_t>> encoded = cw::probe::EncodeBody(*body);
  Require(encoded.ok() && std::equal(encoded->begin(), encoded->end(), data, data + size));
  // One byte less is another length than its count says.
  Require(!DecodeExactly(data, size - 1).ok());
  return 0;
}
