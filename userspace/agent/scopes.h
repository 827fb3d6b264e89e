// SPDX-License-Identifier: Apache-2.0
//
// Modes that hold for one NIC, one rail or one job only, where they are less than the host's: what may be done with a
// flow is the host's mode less what any scope of its NIC and of its job withholds. So a scope can only take away, and
// the order of scopes does not matter. The kernel's programs read the same from the pair's and the flow's record
// (cw_pair.withheld, cw_tx_flow.withheld). Scopes come from the configuration and from operators; those of operators
// are kept in a file of the run folder, for the next agent of the same boot.
// Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/journal.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/api/caller.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/config/config.h"
#include "userspace/model/boot_file.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

class Scopes {
 public:
  static constexpr char kFile[] = "scopes.json";  // in the run folder
  static constexpr size_t kMost = 256;            // of operators

  struct Asks {
    std::function<std::string(const FlowKey& flow)> label;  // of the process that sends it; "": not known (yet)
  };
  struct Hold {
    std::string text;   // for people
    double left_s = 0;  // 0: it does not end by itself
  };

  // boot: see Deadlines. All of them outlive it.
  Scopes(std::string file, std::string boot, const Modes& modes, const NicTable& nics, const PairTable& pairs,
         FlowBook& flows, FlowRecords& records, const probe::Mesh& mesh, const Clock& monotonic, Journal& journal,
         Asks asks)
      : file_(std::move(file), std::move(boot), /*version=*/1),
        modes_(modes),
        nics_(nics),
        pairs_(pairs),
        flows_(flows),
        records_(records),
        mesh_(mesh),
        monotonic_(monotonic),
        journal_(journal),
        asks_(std::move(asks)) {}

  // What the configuration says, instead of what it said before. The programs know with the next Step.
  void Take(std::vector<config::ScopeConfig> configured);
  // What operators asked an earlier agent for. NotFound: nothing, or of an earlier boot. InvalidArgument: unreadable.
  absl::Status Load();

  // Of a request that names a NIC, a rail or a label. optimize: what an operator set there before is over.
  absl::StatusOr<v1::ActionReply> Set(const api::Caller& caller, const v1::SetModeRequest& request);

  // Tells the programs: pairs and flows that are new, jobs that are known now. Once per window, when flows were read.
  void Step(int64_t now_ns);
  void EndDue();  // once a second

  // Capabilities that do not act, a bit of each; see May.
  uint32_t Withheld(uint32_t pair, const FlowKey* flow) const;
  uint32_t OnNic(uint32_t ifindex) const;
  uint32_t OnLabel(const std::string& label) const;
  bool HoldsAJob() const;  // nothing acts for the flows of some job

  // Scopes that hold back the pair's flows, and this one where it is given.
  std::vector<Hold> HoldsOf(const PairState& pair, const FlowKey* flow) const;
  void AddTo(v1::StatusReply& reply) const;

 private:
  struct Scope {
    config::ScopeConfig what;
    bool by_operator = false;
    int64_t until_ns = 0;  // 0: it stays
  };

  static uint32_t Bits(const Scope& scope);
  bool HoldsNic(const Scope& scope, size_t place) const;
  static bool HoldsLabel(const Scope& scope, const std::string& label);
  uint32_t OfFlow(const FlowKey& flow) const;
  void MarkFlow(const FlowKey& key, FlowEntry& flow, int64_t now_ns);
  void Changed();
  absl::StatusOr<Scope> Parse(const v1::SetModeRequest& request) const;
  absl::Status IsThere(const config::ScopeConfig& what) const;
  std::string StillHeld(const config::ScopeConfig& what) const;
  void FollowNic(const std::string& meant, config::ScopeConfig& what) const;
  void Keep();
  absl::Status Save() const;

  const BootFile file_;
  const Modes& modes_;
  const NicTable& nics_;
  const PairTable& pairs_;
  FlowBook& flows_;
  FlowRecords& records_;
  const probe::Mesh& mesh_;
  const Clock& monotonic_;
  Journal& journal_;
  const Asks asks_;

  std::vector<Scope> scopes_;
  absl::flat_hash_map<uint32_t, uint32_t> on_nic_;  // by ifindex
  bool by_label_ = false;                           // some scope is of a label
  bool clean_ = false;                              // there are no scopes, and no record says otherwise
  bool kept_ = true;                                // in their file
};

// "NIC eth2", "rail 3", "label job-x", "every NIC but eth2".
std::string ScopeText(const config::ScopeConfig& scope);

}  // namespace cw::agent
