// SPDX-License-Identifier: Apache-2.0
// The dataplane's programs under BPF_PROG_TEST_RUN: frames in, verdict and frames out, with the maps in reach. Nothing
// is attached or pinned. One thread.
#ifndef CW_TESTS_BPF_PROG_RIG_H
#define CW_TESTS_BPF_PROG_RIG_H

#include <bpf/libbpf.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cwfabric.skel.h"
#include "maps/abi.h"
#include "maps/local_clock.h"
#include "maps/nic_line.h"
#include "maps/wire.h"
#include "tests/bpf/frame.h"

namespace cw::test {

inline constexpr uint32_t kOurs = 0x0a000001, kPeer = 0x0a000002;  // addresses of most frames

struct RunResult {
  int verdict = -1;
  Bytes frame;
  uint64_t departs_ns = 0;  // tc: the packet's departure time
};

class ProgRig {
 public:
  struct Options {
    uint32_t max_tx_flows = 256;
    bool lab_clock = false;
    bool lab_nic = false;
    bool nic_failover = false;
    bool icrc_table = true;
    bool operator==(const Options&) const = default;
  };
  ProgRig();
  explicit ProgRig(const Options& options);
  ~ProgRig();
  ProgRig(const ProgRig&) = delete;
  ProgRig& operator=(const ProgRig&) = delete;

  RunResult Xdp(const Bytes& frame);
  RunResult Tc(const Bytes& frame, uint32_t gso_size = 0, uint64_t departs_ns = 0);
  RunResult TcIn(const Bytes& frame);
  // Nanoseconds per run of the program on the frame.
  uint32_t XdpCost(const Bytes& frame, int repeat);
  uint32_t TcCost(const Bytes& frame, int repeat);
  uint32_t TcInCost(const Bytes& frame, int repeat);

  int presence_fd() const { return bpf_map__fd(skel_->maps.cw_presence); }
  cw_ctl& ctl() { return *ctl_; }
  cw_pair& pair(uint32_t index) { return pairs_[index]; }

  // Makes the pair of the two addresses known, with slots 0 .. slots - 1 up, assignable, on ports 50000 + slot,
  // and keys in both directions.
  void AddPair(uint32_t index, uint32_t local, uint32_t remote, int slots);
  cw_pair_keys keys(uint32_t index);
  void SetKeys(uint32_t index, const cw_pair_keys& keys);
  void SetLabClock(const cw_lab_clock& clock);
  void SetLabNic(const cw_lab_clock& clock);
  void SetNicLine(uint32_t ifindex, const cw_nic_line& line);
  void SetLocalClock(const cw_local_clock& clock);

  std::optional<cw_flow> Flow(const cw_flow_key& key);
  std::optional<cw_tx_flow> TxFlow(const cw_flow_key& key);
  void SetFlow(const cw_flow_key& key, const cw_flow& flow);
  void SetTxFlow(const cw_flow_key& key, const cw_tx_flow& flow);
  // NIC failover: the pair's packets leave as `out` says; what arrives under `key` was `in`.
  void SetCarryOut(uint32_t index, const cw_carry_out& out);
  void SetCarryIn(const cw_carry_key& key, const cw_carry_in& in);
  cw_probe_tx ProbeTx(uint32_t index);
  void SetProbeTx(uint32_t index, const cw_probe_tx& tx);

  // Counters that changed since the last call, as "name=delta name=delta"; but for rewritten, of which every steered
  // packet is one.
  std::string CounterChanges();
  uint64_t Rewritten();  // packets, since the beginning

  // What stands in the rings, oldest first; each record once.
  std::vector<Bytes> Events();
  std::vector<Bytes> Probes();
  std::vector<Bytes> Messages();

  cwfabric* skeleton() { return skel_; }

 private:
  RunResult Run(int fd, const Bytes& frame, void* ctx, size_t ctx_size);
  uint32_t Cost(int fd, const Bytes& frame, int repeat);
  std::vector<Bytes> Drain(bpf_map* map);
  std::vector<uint64_t> Counters();

  Options options_;
  cwfabric* skel_ = nullptr;
  cw_ctl* ctl_ = nullptr;
  cw_pair* pairs_ = nullptr;
  std::vector<uint64_t> counters_seen_;
};

// Of the addresses of Frame, in the suite's family.
cw_flow_key FlowKeyOf(uint32_t saddr, uint32_t daddr, uint32_t qpn);
cw_pair_key PairKeyOf(uint32_t local, uint32_t remote);

// A record of a ring as its type.
template <typename T>
T As(const Bytes& record) {
  T t = {};
  __builtin_memcpy(&t, record.data(), std::min(sizeof(t), record.size()));
  return t;
}

// CLOCK_MONOTONIC, which bpf_ktime_get_ns() reads.
uint64_t MonotonicNs();
uint64_t JiffiesNow(ProgRig& rig);

}  // namespace cw::test

#endif
