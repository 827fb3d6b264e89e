// SPDX-License-Identifier: Apache-2.0
// A build without CW_PROBE_VERBS: no NIC's own probes go by verbs. NICs that the kernel serves answer peers that have
// them.
#include "userspace/probe_verbs/ud_endpoint.h"

namespace cw::probe_verbs {

absl::StatusOr<std::unique_ptr<UdEndpoint>> UdEndpoint::Open(const EndpointOptions&) {
  return absl::UnimplementedError("this build of cwfabric has no probes by verbs (CW_PROBE_VERBS)");
}

bool UdEndpoint::IsThere(const EndpointOptions&) { return false; }

}  // namespace cw::probe_verbs
