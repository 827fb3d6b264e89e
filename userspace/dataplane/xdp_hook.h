// SPDX-License-Identifier: Apache-2.0
//
// XDP on one interface of the calling thread's network namespace, by bpf_link, pinned.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "maps/unique_fd.h"
#include "userspace/dataplane/program_set.h"

namespace cw::dataplane {

enum class XdpMode { kNative, kGeneric };

struct XdpAttachment {
  maps::UniqueFd link;
  XdpMode mode = XdpMode::kNative;
  bool frags = true;
  bool adopted = false;     // the pinned link was there
  bool nic_stamps = false;  // the program is the one that is bound to this NIC
  std::string stamps_note;  // "" or why it is not, though it was wanted
  std::string warning;      // "" or what the chosen mode costs, and why no better one was possible
};

// Adopts the link pinned for this interface (and exchanges its program when it is another), or attaches: native with
// frags, native without, generic. nic_stamps: first of all the program that is bound to the NIC. AlreadyExists, naming
// the program, when somebody else's is in our place.
absl::StatusOr<XdpAttachment> AttachXdp(ProgramSet& programs, const PinFolder& pins, uint32_t ifindex, bool nic_stamps);

// Id of the XDP program on the interface, whoever attached it; 0: there is none.
absl::StatusOr<uint32_t> XdpOf(uint32_t ifindex);

// Detaches and unpins. Ok when there is nothing.
absl::Status DetachXdp(const PinFolder& pins, uint32_t ifindex);

}  // namespace cw::dataplane
