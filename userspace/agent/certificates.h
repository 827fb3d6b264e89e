// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "userspace/config/config.h"
#include "userspace/host/certificate_check.h"

namespace cw::agent {

// What doctor judges; reads the files. Nothing where the API is not served over TCP.
std::optional<host::CertificateFacts> LookAtCertificates(const config::ApiConfig& api);

}  // namespace cw::agent
