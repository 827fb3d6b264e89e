// SPDX-License-Identifier: Apache-2.0
//
// All checks of a host in the order that they are shown. The agent calls it with what it knows; without an agent cwctl
// calls it, and what only an agent can know is then "unknown". Judges only: changes nothing. Any thread, takes a few
// milliseconds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "userspace/host/certificate_check.h"
#include "userspace/host/check.h"
#include "userspace/host/live.h"
#include "userspace/host/roots.h"

namespace cw::host {

enum class Hashing { kUnknown, kPorts, kQpn, kTtl, kSprayed, kSinglePath };

struct NicFacts {
  std::string name;
  std::string ingress;  // how the agent attached: native, generic, none; "" = no agent
  std::string note;     // why not native
  std::string probes;   // by what its probes go instead; "" = by the programs, or nothing
  std::string trouble;  // its device or its address is gone; "" = both are there
  std::string renamed;  // what is to be written instead of its name in the configuration; "" = nothing
  std::string hooks;    // why the agent's programs do not see its packets now; "" = they do, or are not wanted
};

struct DoctorInput {
  bool agent_runs = false;
  std::string agent_note;      // version and mode of the agent, or why there is none
  std::vector<NicFacts> nics;  // empty: CandidateNics
  Hashing hashing = Hashing::kUnknown;
  double clock_error_ns = -1;  // likely error of fleet time, worst peer; negative: no estimate
  bool prober_realtime = false;
  uint64_t gso_frames = 0;                       // that left in one piece, as the programs count them
  std::optional<CertificateFacts> certificates;  // nothing: the API is not served over TCP
  std::string no_qp_moments;  // why the kernel does not tell the agent of queue pairs as they connect; "" = it does
};

std::vector<Check> RunDoctor(const Roots& roots, LiveProbe& live, const DoctorInput& input);

// The worst counts: fail over warn over unknown over ok.
Check::Result Worst(const std::vector<Check>& checks);

}  // namespace cw::host
