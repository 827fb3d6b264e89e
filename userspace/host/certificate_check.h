// SPDX-License-Identifier: Apache-2.0
//
// The certificate that the API is served with over TCP: a pure judgement of facts that the agent looked up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "userspace/host/check.h"

namespace cw::host {

struct CertificateFile {
  std::string path;
  bool secret = false;  // a key
  uint32_t mode = 0;    // permission bits
  uint32_t owner = 0;   // uid
};

struct CertificateFacts {
  std::string problem;  // why they cannot be used at all; "" = they can
  std::vector<CertificateFile> files;
  absl::Time host_until, authority_until;
  uint32_t agent_uid = 0;
};

// Over or unusable, or a key that others have: fail. Over within 14 days, or files that others may change: warn.
Check CheckCertificates(const CertificateFacts& facts, absl::Time now);

}  // namespace cw::host
