// SPDX-License-Identifier: Apache-2.0
//
// Links that flap: which link a path died of (control/link_blame.h), how often that happened to it
// (control/link_book.h), and who keeps away from it. Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns, unless
// they are called local.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/pair_state.h"
#include "userspace/control/gone_links.h"
#include "userspace/control/link_blame.h"
#include "userspace/control/link_book.h"
#include "userspace/model/clock.h"
#include "userspace/probe/discovery.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

class LinkFlaps {
 public:
  struct Asks {
    std::function<const probe::Hops*(uint32_t pair, uint8_t slot)> hops;  // nullptr: no path there, or not traced
    std::function<int64_t(uint32_t pair)> interval_ns;                    // of its probes now
    std::function<void()> read_probes;                                    // the newest count
    std::function<void()> damp_anew;                                      // a link was blamed
    std::function<void(absl::Duration, std::function<void()>)> after;
  };

  // file, boot: see link_file.h; what an earlier agent saw is read. The rest outlives it.
  LinkFlaps(std::string file, std::string boot, const PairTable& pairs, const probe::Mesh& mesh, const Clock& local,
            const Clock& monotonic, EventSink& events, Asks asks);

  void Keep();  // in the file, where anything is new; once a second

  // What the slots' paths go over now, as far as it is known in full.
  void Remember(PairState& pair);
  void Leave(PairState& pair, uint8_t slot);  // the slot means another path from now on
  // A path died, by the kernel's verdict, and its slot is marked silent. Which link it was is known a little later.
  void Blame(const PairState& pair, const cw_ev_slot& verdict);
  void Answered(const PairState& pair, uint8_t slot, int64_t sent_local_ns);  // a probe of a path that was blamed
  void Forgive(const PairState& pair, uint8_t slot);                          // it was not dead but paused
  void OwnLinkDown(const std::string& nic, int64_t began_ns);                 // a NIC of ours lost its carrier
  bool Damps(const PairState& pair, uint8_t slot, int64_t now_ns) const;      // no flow shall be put there

  const control::LinkBook& book() const { return book_; }
  const control::GoneLinks& gone() const { return gone_; }

 private:
  void BlameTick();
  void CountOutage(const control::Blame& blame);
  void Tell(const control::FlapAlert& alert);
  std::string TextOf(const std::string& end) const;

  const std::string file_, boot_;
  const PairTable& pairs_;
  const probe::Mesh& mesh_;
  const Clock& local_;
  const Clock& monotonic_;
  EventSink& events_;
  const Asks asks_;

  control::LinkBlame blame_;
  control::LinkBook book_;
  control::GoneLinks gone_;
  bool ticking_ = false;
  bool kept_ = true;  // in its file
};

}  // namespace cw::agent
