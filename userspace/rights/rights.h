// SPDX-License-Identifier: Apache-2.0
//
// Capabilities (capabilities(7)) are a thread's, and a new thread has those of the one that makes it: so rights are
// given up once what needs them is done, and threads that read what strangers send are made without any.
// Thread rule: every function is about the calling thread, and about those that it makes from then on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::rights {

// A set of capabilities: bit N is the one of number N in linux/capability.h.
using Set = uint64_t;
constexpr Set Bit(int capability) { return Set{1} << capability; }

extern const Set kNone;
// What the agent's main loop still does when everything runs: maps and their programs (BPF), attaching to a NIC and
// neighbour entries (NET_ADMIN), sockets of probes (NET_RAW).
extern const Set kSteady;

// What is left of `held` for a user. Root alone keeps its way with other users' files (CAP_DAC_OVERRIDE), where it had
// it: the service's folders are another user's, and threads without it would have less than any user.
constexpr Set Left(Set held, Set keep, bool root) { return held & (keep | (root ? Bit(1) : 0)); }

// Gives up everything but `keep` for good: permitted and effective, nothing inheritable or ambient, and no program that
// is executed can regain it (no_new_privs).
absl::Status KeepOnly(Set keep);

// Runs `work` on a thread that has given up everything, and waits for it: threads that `work` makes have nothing.
absl::Status RunWithout(absl::FunctionRef<void()> work);

absl::StatusOr<Set> Held();               // permitted
std::vector<std::string> Names(Set set);  // "CAP_BPF"; unknown ones by their number

}  // namespace cw::rights
