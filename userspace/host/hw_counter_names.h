// SPDX-License-Identifier: Apache-2.0
//
// What the hw_counters of RDMA devices that matter on RoCE count, in the words of the drivers' documentation put short.
// One name, one meaning: drivers share these. Any thread.
#pragma once

#include <string>

namespace cw::host {

std::string HwCounterMeaning(const std::string& name);  // "" = not known here

}  // namespace cw::host
