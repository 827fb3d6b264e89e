// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of a message between agents: no read outside of it (AddressSanitizer), no overflow (UBSan). A
// body has one form only: what is accepted encodes to the very bytes that it came from.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "userspace/probe/messages.h"

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > CW_MSG_MAX) return 0;  // no datagram carries it
  const absl::StatusOr<cw::probe::Body> body = DecodeExactly(data, size);
  if (!body.ok()) {
    Require(absl::IsInvalidArgument(body.status()) || absl::IsUnimplemented(body.status()));
    return 0;
  }
  const absl::StatusOr<std::vector<uint8_t>> encoded = cw::probe::EncodeBody(*body);
  Require(encoded.ok() && std::equal(encoded->begin(), encoded->end(), data, data + size));
  // One byte less is another length than its count says.
  Require(!DecodeExactly(data, size - 1).ok());
  return 0;
}
