// SPDX-License-Identifier: Apache-2.0
//
// A small tc program on a device of the calling thread's network namespace, for faults that the fabric has no word for.
#pragma once

#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cw::lab {

// What `then` is reached for: one packet of `every`, at random; the others pass.
std::vector<bpf_insn> OneOf(uint32_t every, const std::vector<bpf_insn>& then);

// Stays on the device until its namespace goes.
absl::Status AttachTc(const std::string& device, bpf_tc_attach_point point, const std::vector<bpf_insn>& program);

}  // namespace cw::lab
