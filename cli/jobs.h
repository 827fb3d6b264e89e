// SPDX-License-Identifier: Apache-2.0
//
// A collective in one line, for the verbs that name one.
#pragma once

#include <string>

#include "userspace/api/cwfabric.pb.h"

namespace cw::cli {

std::string CollectiveText(const cwfabric::v1::Collective& collective);

}  // namespace cw::cli
