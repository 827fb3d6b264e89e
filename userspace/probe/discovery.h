// SPDX-License-Identifier: Apache-2.0
//
// Which UDP source ports take which path: the state of path discovery for one pair of NICs. Each candidate port is
// traced with small TTLs, ports with the same hops are one path, and each path's port is traced again from time to
// time; one hop that differs makes the whole table invalid, and it is built anew. From then on the fabric is in motion:
// the switch that went will come back, and each change of an ECMP group deals ports out anew. Paths are then traced
// each second, twice as rarely each time, and until the usual interval is reached nobody should lean on two ports
// taking the same path. The number of ports follows the answers: with k paths seen, go on until a further path as
// likely as the others would have been missed with less than 1 % (union bound of the coupon collector's problem). Where
// switches do not answer, hops are unknown and every port counts as a path of its own. (Where a host's own leaf is the
// only switch that answers, the pair looks as if it had a single path.) Once the table is built, a few of its ports are
// traced again several times: the fabric's self-test. A table of a fabric that sprays means nothing; it is not verified
// but the test repeated, until it passes and a new table is built. What pairs behind the same switch have found makes
// both shorter (path_pool.h). Pure: no sockets, time comes in. Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "maps/wire.h"
#include "userspace/model/addr.h"
#include "userspace/probe/hops.h"
#include "userspace/probe/path_pool.h"
#include "userspace/probe/self_test.h"

namespace cw::probe {

inline constexpr int kMaxTraceTtl = 7;  // the IP id has three bits for it

struct DiscoveryOptions {
  int max_ttl = 7;          // 1–7: hops that may differ lie within it; the end of a path of so many is not seen
  int max_candidates = 51;  // ports traced to build a table
  int max_paths = 12;
  int max_unknown = 8;  // paths whose hops are not (all) known
  int tries = 3;        // per TTL
  int window = 8;       // ports under way at once
  int64_t timeout_ns = 500'000'000;
  int64_t verify_interval_ns = 30'000'000'000;
  double miss_probability = 0.01;
  uint16_t first_port = 49152;  // candidates are drawn from the ephemeral ports of RFC 6335
  uint16_t port_count = 16384;
  std::vector<uint16_t> ports;  // not empty: candidates are drawn from these instead
  uint64_t seed = 1;
};

struct Path {
  uint16_t port = 0;
  Hops hops;
  bool known = false;       // no hop is missing in between
  int64_t verified_ns = 0;  // when the hops were last seen to be these
};

struct PathTable {
  bool valid = false;       // built, and no hop has differed since
  bool truncated = false;   // there are more paths than max_paths
  uint64_t generation = 0;  // of the build
  std::vector<Path> paths;
};

// A trace packet that should go out.
struct TraceProbe {
  uint16_t port = 0;
  uint8_t ttl = 0;
  uint16_t ip_id = 0;  // names the attempt and the TTL; the ICMP answer quotes it
  uint32_t qpn = CW_BTH_QPN;
};

struct DiscoveryEvent {
  enum class Kind {
    kTable,    // a table was built or its paths changed
    kInvalid,  // port's hops differ from before: freeze moves, a new table is on its way
    kTraced,   // a port traced on demand: Fold() knows it now
    kHashing,  // hashing() has changed
    kCalm,     // InMotion() is over
    kCut,      // a trace of this path's port ends before its hops do, or no longer: NewestOf() has it
  };
  Kind kind = Kind::kTable;
  uint16_t port = 0;
  Hops before;  // kInvalid
  Hops after;   // kInvalid, kTraced
};

class Discovery {
 public:
  // preferred: ports to try first and to keep as a path's port, such as those of adopted slots. pool: what other pairs
  // of this NIC know; it outlives this, nullptr: nothing.
  Discovery(const DiscoveryOptions& options, const std::vector<uint16_t>& preferred, const PathPool* pool = nullptr);

  void Rebuild();  // from the start; the table is invalid until it is done
  // A path died or came back, so ports may have been dealt out anew: all paths are traced now, at most once a second.
  void Doubt(int64_t now_ns);
  void TracePort(
      uint16_t port);  // on demand, and again in each later build; a port already traced gives its event at once
  void ForgetPort(uint16_t port);  // no longer asked for

  // Packets to send now. grant(ttl) takes one packet from the budget of the switches at that distance, or refuses.
  std::vector<TraceProbe> Poll(int64_t now_ns, const std::function<bool(int ttl)>& grant);
  // An ICMP time-exceeded message that quotes this port and IP id.
  void OnAnswer(uint16_t port, uint16_t ip_id, const Addr& router, int64_t now_ns);
  // When Poll has something to do; now or earlier: at once, as far as the budget goes.
  int64_t NextDeadlineNs() const;

  std::vector<DiscoveryEvent> TakeEvents();
  const PathTable& table() const { return table_; }
  // The port of the path that a traced port takes; nullopt: not traced, hops unknown, or not in the table.
  std::optional<uint16_t> Fold(uint16_t port) const;
  const Hops* HopsOf(uint16_t port) const;  // nullptr: not traced
  // What its newest trace saw, where that is less than HopsOf: its path is cut behind them, or an answer was lost.
  const Hops* CutOf(uint16_t port) const;  // nullptr: nothing is lacking
  // Its hops are whole as far as traces can tell: those of a path that is known, none of the pair's is longer, and the
  // TTL behind the last was tried and is silent. Where nothing gets through it looks the same: end_proof.h.
  bool EndsAtLastSwitch(uint16_t port) const;
  Hashing hashing() const { return hashing_; }  // kUnknown until the first table was tested
  bool InMotion() const { return in_motion_; }
  bool Busy() const { return building_ || repeats_.running(); }  // a table is being built, or tested
  // Of the ports of this build: the paths that they take, and how many were drawn by chance.
  struct Sample {
    std::set<Hops> paths;
    int drawn = 0;
  };
  Sample SampleSoFar() const;
  int ports_traced() const { return static_cast<int>(results_.size()); }

 private:
  enum class Purpose { kCandidate, kVerify, kDemand, kRepeat };
  struct Attempt {
    bool done = false;
    int tries = 0;
    uint16_t ip_id = 0;  // 0: none under way
    int64_t sent_ns = 0;
    Addr router;
  };
  struct Verify {
    int64_t at_ns = 0, step_ns = 0;  // the next time, and from then to the one after
  };
  struct Trace {
    Purpose purpose = Purpose::kCandidate;
    uint32_t qpn = CW_BTH_QPN;
    std::array<Attempt, kMaxTraceTtl> hop;
  };

  void Restart();
  size_t PortCount() const;
  uint16_t DrawPort();
  bool OneMoreIsUnlikely(size_t paths, int drawn) const;
  std::optional<size_t> MissingOfKnown(const std::set<Hops>& paths) const;
  int Window() const;
  bool WantMoreCandidates() const;
  std::optional<uint16_t> NextCandidate();
  void StartTraces(int64_t now_ns);
  Trace RepeatTrace(uint16_t port) const;
  void Expire(int64_t now_ns);
  void FinishTraces(int64_t now_ns);
  void Finish(uint16_t port, const Trace& trace, int64_t now_ns);
  void FinishVerify(uint16_t port, const Hops& hops, int64_t now_ns);
  void NoteCut(uint16_t port, const Hops& hops);  // none: it is whole
  void FinishDemand(uint16_t port, const Hops& hops, int64_t now_ns);
  bool IsNew(const Hops& hops) const;
  std::set<uint16_t> ShortPorts(const std::map<uint16_t, Hops>& certain) const;
  void NoteUnsure(int64_t now_ns);
  void BeginSelfTest();
  void FinishSelfTest();
  Hashing Judge() const;
  void BuildTable(int64_t now_ns);
  void DrawUnknownPaths(PathTable* table);
  void ScheduleVerify(int64_t now_ns);
  int64_t HurriedNs() const;
  void LookForCalm();
  std::vector<uint16_t> PortsByPreference() const;
  bool NothingAnswers() const;
  int MaxTtl() const;
  bool DepthKnown() const;  // enough traces have ended to know where paths end
  int LastTtl() const;      // TTLs beyond it are not worth a packet
  int TriesAt(int ttl) const;
  int64_t TimeoutNs(int ttl) const;
  uint16_t NextIpId(int ttl);

  const DiscoveryOptions options_;
  const PathPool* const pool_;
  std::mt19937_64 random_;
  std::vector<uint16_t> preferred_;
  bool building_ = true;
  std::vector<uint16_t> candidates_;  // drawn so far in this build, in order; first the preferred ones …
  size_t not_drawn_ = 0;              // … of which there are so many at most
  std::map<uint16_t, Trace> active_;
  std::set<uint16_t> demanded_;        // native ports: traced in each build
  std::map<uint16_t, Hops> results_;   // of this build
  std::map<uint16_t, Hops> cut_;       // ports of paths: the newest trace, where it saw less than the results
  std::map<uint16_t, uint16_t> fold_;  // traced port → port of its path
  std::map<uint16_t, Verify> verify_;  // port of a path → when to trace it again
  // Ports whose hops are not known in full, as where something on their path was dead then: likewise. All that are
  // demanded, and some of the candidates.
  std::map<uint16_t, Verify> unsure_;
  int depth_ = 0;     // largest TTL that was answered in this build
  int finished_ = 0;  // traces finished in this build
  uint16_t next_nonce_ = 0;
  PathTable table_;
  RepeatTest repeats_;
  Hashing hashing_ = Hashing::kUnknown;
  bool in_motion_ = false;
  int64_t doubted_ns_ = 0;  // 0: never
  std::vector<DiscoveryEvent> events_;
};

}  // namespace cw::probe
