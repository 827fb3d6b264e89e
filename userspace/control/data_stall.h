// SPDX-License-Identifier: Apache-2.0
//
// Paths on which data dies while probes pass: a switch that drops one class, one size, or what its table has wrong. The
// witness is the flows' own acknowledgements. All flows on the path that have packets under way stand still, none of
// them is answered, and on other paths to the same NIC flows go on: so it is neither the receiver nor the sender.
//
// A flow stands still when for quiet_ns nothing of it was acknowledged and no answer came, not even a NAK, and either
// it sends nothing new for as long, or it has many more packets under way than it ever had when acknowledgements came
// (a long message is acknowledged once). After a verdict the path is kept free: probes cannot tell when it is whole
// again, so it is tried again after a time that doubles with each verdict, and halves for each such time in use. A flow
// that stands still for a reason of its own is blamed on one path only, until it goes on; and no more than half of the
// paths are kept free like this. Flows of two paths that stand still together, while no flow goes on, have a peer that
// was away or a sender that stood still: whatever each of them waits for then, a timer of seconds perhaps, is nobody's
// fault until it goes on. So with flows on a path that was dead to the probes, too, and with those that moved while
// they had packets under way: what a lossy path lost of them waits for a timer on the next.
// On the other paths more flows have to go on than wait, whatever for: else it is a host that is starved, or a stack
// that hardly works, and those that go on are the lucky ones.
// A path by which anything was acknowledged within quiet_ns delivers data, whatever else stands still on it. And where
// all that stands still is one process's, one of its own flows must go on by another path: else its peer may have died,
// which is nobody's path.
//
// How long a silence has to last follows what silences of these flows ended by themselves lately: stacks and timers
// differ, and a starved host stalls often (the idea of accrual failure detectors: Hayashibara et al., SRDS 2004). A
// host that looks seldom sees less of that: it waits for the time of three looks at least. Time in which nobody looked,
// for four looks or longer, is no silence: the host stood still, and its stack perhaps with it. And three looks in a
// row have to find the flow quiet: the first may have been late. Where one flow is all there is on a path, its own
// stack explains more than the path does: it is waited for longer, and has to have sent again in vain. A stack that
// sends nothing again waits for something else, or has lost the flow itself.
//
// Pure: time comes in (any monotonic clock). One thread per object.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "userspace/model/flow.h"
#include "userspace/model/names.h"

namespace cw::control {

struct DataStallRules {
  int64_t quiet_ns = 60'000'000;          // of silence at least, and three looks …
  double longest_times = 3;               // … and so many times the longest that ended by itself, …
  int64_t most_quiet_ns = 2'000'000'000;  // … but no more than this
  int64_t lone_quiet_ns = 2'000'000'000;  // of the one flow of a path at least, and twice as long as of others …
  int64_t most_lone_quiet_ns = 10'000'000'000;  // … but no more than this
  int64_t longest_memory_ns = 10'000'000'000;   // in which that one is forgotten (to 1/e)
  double many_times = 2;  // so many times the packets under way that were acknowledged before, and at least …
  uint32_t many = 32;     // … so many
  int64_t away_ns = 1'000'000'000;
  int64_t most_away_ns = 600'000'000'000;
};

// One sent flow between the two NICs, as its record says.
struct DataFlow {
  FlowKey key;
  uint8_t slot = kSlotNone;
  uint32_t next = 0, acked = 0;  // PSNs, 24 bits: sent next for the first time, first that is not acknowledged
  uint64_t answers = 0;          // ACKs and NAKs received, a total
  uint64_t resent = 0;           // packets that were sent again, a total
  bool known = false;            // the PSNs are exact
  uint32_t process = 0;          // that sends it; 0: not known
};

class DataStall {
 public:
  explicit DataStall(const DataStallRules& rules = {}) : rules_(rules) {}

  struct Verdict {
    uint8_t slot = 0;
    int flows = 0;         // that stand still on it …
    int64_t quiet_ns = 0;  // … for so long, the shortest of them
    int witnesses = 0;     // flows that went on elsewhere meanwhile, more than waited there
    int64_t away_ns = 0;   // the path is kept free for so long
  };
  // Call once per window with all flows between the two NICs. judged: slots that are alive. Flows on others are
  // excused until they go on.
  std::vector<Verdict> Step(int64_t now_ns, absl::Span<const DataFlow> flows, uint16_t judged);
  // Slots to keep free now.
  uint16_t KeptFree(int64_t now_ns) const;
  // The slot is another path now.
  void Forget(uint8_t slot) { slot_[slot] = {}; }

 private:
  struct Flow {
    uint8_t slot = kSlotNone;
    uint32_t next = 0, acked = 0, usual = 0;  // usual: most packets under way that went on to be acknowledged
    uint64_t answers = 0, resent = 0;         // resent: when it fell quiet
    uint32_t process = 0;
    bool tried = false;  // to send again since
    int64_t quiet_since_ns = 0, sent_ns = 0, progress_ns = 0;
    int64_t slot_since_ns = 0;                // it takes this path
    int looks = 0;                            // in a row that found it quiet
    bool under_way = false, excused = false;  // excused: not asked again before it goes on
    int64_t seen_ns = 0;
  };
  struct Slot {
    int64_t free_until_ns = 0, away_ns = 0;
    int verdicts = 0;
  };

  void Follow(int64_t now_ns, const DataFlow& seen);
  bool Delivers(int64_t now_ns, const Flow& flow) const;
  bool MayBeItsPeer(int64_t now_ns, uint8_t slot) const;
  bool StandsStill(int64_t now_ns, const Flow& flow) const;
  int64_t Quiet() const;
  int64_t LearntQuiet() const;
  int64_t Patience() const;
  int64_t LonePatience() const;
  void BeginLook(int64_t now_ns);
  Verdict Judge(int64_t now_ns, uint8_t slot) const;
  void ExcuseIfAllStand(int64_t now_ns);

  DataStallRules rules_;
  int64_t longest_ns_ = 0;  // silence that ended by itself, slowly forgotten
  int64_t stepped_ns_ = 0, since_last_ns_ = 0;
  int64_t period_ns_ = 0;       // of looks: the shorter of the last two
  bool nobody_looked_ = false;  // for the time of several looks
  std::map<FlowKey, Flow> flows_;
  std::array<Slot, kMaxSlots> slot_;
};

}  // namespace cw::control
