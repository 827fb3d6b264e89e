// SPDX-License-Identifier: Apache-2.0
#include "tests/bpf/prog_rig.h"

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "bpf/icrc.h"
#include "bpf/psn.h"

namespace cw::test {
namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  abort();
}

void* Map(bpf_map* map, size_t size) {
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
  Require(at != MAP_FAILED, "mmap of a map");
  return at;
}

constexpr size_t kPairs = 16;

cwfabric* Load(const ProgRig::Options& options) {
  cwfabric* skel = cwfabric::open();
  Require(skel != nullptr, "open");
  Require(bpf_map__set_max_entries(skel->maps.cw_flows, 4096) == 0, "size");
  Require(bpf_map__set_max_entries(skel->maps.cw_tx_flows, options.max_tx_flows) == 0, "size");
  Require(bpf_map__set_max_entries(skel->maps.cw_pairs, kPairs) == 0, "size");
  Require(bpf_map__set_max_entries(skel->maps.cw_probe_tx, kPairs) == 0, "size");
  Require(bpf_map__set_max_entries(skel->maps.cw_keys, kPairs) == 0, "size");
  Require(bpf_map__set_max_entries(skel->maps.cw_carry_out, kPairs) == 0, "size");
  Require(bpf_map__set_autocreate(skel->maps.cw_lab_clock, options.lab_clock) == 0, "autocreate");
  Require(bpf_map__set_autocreate(skel->maps.cw_lab_nic, options.lab_nic) == 0, "autocreate");
  skel->rodata->cw_lab_clock_on = options.lab_clock;
  skel->rodata->cw_lab_nic_on = options.lab_nic;
  skel->rodata->cw_nic_failover_on = options.nic_failover;
  if (options.icrc_table) cw_icrc_pow_fill(skel->rodata->cw_icrc_pow);
  Require(cwfabric::load(skel) == 0, "load");
  return skel;
}

void Discard(bpf_map* map) {
  ring_buffer* ring = ring_buffer__new(
      bpf_map__fd(map), [](void*, void*, size_t) { return 0; }, nullptr, nullptr);
  Require(ring != nullptr, "ring");
  ring_buffer__consume(ring);
  ring_buffer__free(ring);
}

void Zero(bpf_map* map) {
  // Room for one value of each possible processor, as arrays per processor take it.
  const size_t value = (bpf_map__value_size(map) + 7) / 8 * 8 * static_cast<size_t>(libbpf_num_possible_cpus());
  const std::vector<uint8_t> zeros(value);
  for (uint32_t i = 0; i < bpf_map__max_entries(map); ++i)
    Require(bpf_map_update_elem(bpf_map__fd(map), &i, zeros.data(), BPF_ANY) == 0, "zero");
}

void Clear(bpf_map* map) {
  std::vector<uint8_t> key(bpf_map__key_size(map));
  while (bpf_map_get_next_key(bpf_map__fd(map), nullptr, key.data()) == 0)
    Require(bpf_map_delete_elem(bpf_map__fd(map), key.data()) == 0, "delete");
}

// As it was when it was loaded.
void Reset(cwfabric* skel) {
  bpf_map* map;
  bpf_object__for_each_map(map, skel->obj) {
    if (bpf_map__is_internal(map) || bpf_map__fd(map) < 0) continue;
    switch (bpf_map__type(map)) {
      case BPF_MAP_TYPE_RINGBUF:
        Discard(map);
        break;
      case BPF_MAP_TYPE_ARRAY:
      case BPF_MAP_TYPE_PERCPU_ARRAY:
        Zero(map);
        break;
      case BPF_MAP_TYPE_PERF_EVENT_ARRAY:
        break;  // what is there goes with whoever put it there
      default:
        Clear(map);
    }
  }
}

// Loaded programs that no rig uses: where many tests run in one process, and verification takes seconds (emulated
// processors), they are loaded once.
struct Idle {
  ProgRig::Options options;
  cwfabric* skel;
};
std::vector<Idle>& IdlePrograms() {
  static auto* idle = new std::vector<Idle>();
  return *idle;
}

cwfabric* Programs(const ProgRig::Options& options) {
  auto& idle = IdlePrograms();
  auto at = std::find_if(idle.begin(), idle.end(), [&](const Idle& i) { return i.options == options; });
  if (at == idle.end()) return Load(options);
  cwfabric* skel = at->skel;
  idle.erase(at);
  Reset(skel);
  return skel;
}

}  // namespace

ProgRig::ProgRig() : ProgRig(Options()) {}

ProgRig::ProgRig(const Options& options) : options_(options), skel_(Programs(options)) {
  ctl_ = static_cast<cw_ctl*>(Map(skel_->maps.cw_ctl, sizeof(cw_ctl)));
  pairs_ = static_cast<cw_pair*>(Map(skel_->maps.cw_pairs, sizeof(cw_pair) * kPairs));
  ctl_->abi_version = CW_ABI_VERSION;
  ctl_->mode = CW_MODE_OBSERVE;
  ctl_->sample_level_tx = ctl_->sample_level_rx = 32;
  ctl_->miss_limit = 3;
  ctl_->revive_limit = 8;
  ctl_->session = 77;
  ctl_->move_gap_ns = 1000000000;
  counters_seen_ = Counters();
}

ProgRig::~ProgRig() {
  munmap(ctl_, sizeof(cw_ctl));
  munmap(pairs_, sizeof(cw_pair) * kPairs);
  IdlePrograms().push_back({options_, skel_});
}

RunResult ProgRig::Run(int fd, const Bytes& frame, void* ctx, size_t ctx_size) {
  RunResult result;
  result.frame.resize(16384);
  LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame.data(), .data_out = result.frame.data(),
              .data_size_in = static_cast<__u32>(frame.size()),
              .data_size_out = static_cast<__u32>(result.frame.size()), .ctx_in = ctx, .ctx_out = ctx,
              .ctx_size_in = static_cast<__u32>(ctx_size), .ctx_size_out = static_cast<__u32>(ctx_size), .repeat = 1);
  Require(bpf_prog_test_run_opts(fd, &opts) == 0, "BPF_PROG_TEST_RUN");
  result.frame.resize(opts.data_size_out);
  result.verdict = static_cast<int>(opts.retval);
  return result;
}

RunResult ProgRig::Xdp(const Bytes& frame) {
  return Run(bpf_program__fd(skel_->progs.cw_xdp_ingress), frame, nullptr, 0);
}

RunResult ProgRig::Tc(const Bytes& frame, uint32_t gso_size, uint64_t departs_ns) {
  __sk_buff skb = {};
  skb.gso_size = gso_size;
  skb.tstamp = departs_ns;
  RunResult result = Run(bpf_program__fd(skel_->progs.cw_tc_egress), frame, &skb, sizeof(skb));
  result.departs_ns = skb.tstamp;
  return result;
}

RunResult ProgRig::TcIn(const Bytes& frame) {
  return Run(bpf_program__fd(skel_->progs.cw_tc_ingress), frame, nullptr, 0);
}

uint32_t ProgRig::Cost(int fd, const Bytes& frame, int repeat) {
  Bytes out(16384);
  LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame.data(), .data_out = out.data(),
              .data_size_in = static_cast<__u32>(frame.size()), .data_size_out = static_cast<__u32>(out.size()),
              .repeat = repeat);
  Require(bpf_prog_test_run_opts(fd, &opts) == 0, "BPF_PROG_TEST_RUN");
  return opts.duration;
}

uint32_t ProgRig::XdpCost(const Bytes& frame, int repeat) {
  return Cost(bpf_program__fd(skel_->progs.cw_xdp_ingress), frame, repeat);
}

uint32_t ProgRig::TcCost(const Bytes& frame, int repeat) {
  return Cost(bpf_program__fd(skel_->progs.cw_tc_egress), frame, repeat);
}

uint32_t ProgRig::TcInCost(const Bytes& frame, int repeat) {
  return Cost(bpf_program__fd(skel_->progs.cw_tc_ingress), frame, repeat);
}

void ProgRig::AddPair(uint32_t index, uint32_t local, uint32_t remote, int slots) {
  cw_pair& p = pair(index);
  p = {};
  p.key = PairKeyOf(local, remote);
  p.interval_ns = 1000000;
  p.half_dead_rounds = 15;
  for (int s = 0; s < slots; ++s) {
    p.slot[s].port = static_cast<__u16>(50000 + s);
    p.slot[s].state = CW_SLOT_UP;
    p.slot[s].flags = CW_SLOT_ASSIGNABLE;
    p.live_mask |= 1u << s;
    p.assign_mask |= 1u << s;
  }
  Require(bpf_map__update_elem(skel_->maps.cw_pair_index, &p.key, sizeof(p.key), &index, sizeof(index), 0) == 0,
          "pair index");
  cw_pair_keys k = {};
  for (int i = 0; i < 2; ++i) {
    for (int half = 0; half < 2; ++half) {
      k.tx[i][half] = 0x1111111111111111ull * (index + 1) + static_cast<__u64>(i * 2 + half);
      k.rx[i][half] = 0x2222222222222222ull * (index + 1) + static_cast<__u64>(i * 2 + half);
    }
  }
  k.valid = 1;
  SetKeys(index, k);
}

cw_pair_keys ProgRig::keys(uint32_t index) {
  cw_pair_keys k = {};
  Require(bpf_map__lookup_elem(skel_->maps.cw_keys, &index, sizeof(index), &k, sizeof(k), 0) == 0, "keys");
  return k;
}

void ProgRig::SetKeys(uint32_t index, const cw_pair_keys& k) {
  Require(bpf_map__update_elem(skel_->maps.cw_keys, &index, sizeof(index), &k, sizeof(k), 0) == 0, "keys");
}

void ProgRig::SetLabClock(const cw_lab_clock& clock) {
  uint32_t zero = 0;
  Require(bpf_map__update_elem(skel_->maps.cw_lab_clock, &zero, sizeof(zero), &clock, sizeof(clock), 0) == 0, "clock");
}

void ProgRig::SetLabNic(const cw_lab_clock& clock) {
  uint32_t zero = 0;
  Require(bpf_map__update_elem(skel_->maps.cw_lab_nic, &zero, sizeof(zero), &clock, sizeof(clock), 0) == 0, "NIC");
}

void ProgRig::SetNicLine(uint32_t ifindex, const cw_nic_line& line) {
  Require(bpf_map__update_elem(skel_->maps.cw_nic_lines, &ifindex, sizeof(ifindex), &line, sizeof(line), 0) == 0,
          "line of the NIC");
}

void ProgRig::SetLocalClock(const cw_local_clock& clock) {
  uint32_t zero = 0;
  Require(bpf_map__update_elem(skel_->maps.cw_local_clock, &zero, sizeof(zero), &clock, sizeof(clock), 0) == 0,
          "local clock");
}

std::optional<cw_flow> ProgRig::Flow(const cw_flow_key& key) {
  cw_flow f = {};
  if (bpf_map__lookup_elem(skel_->maps.cw_flows, &key, sizeof(key), &f, sizeof(f), 0) != 0) return std::nullopt;
  return f;
}

std::optional<cw_tx_flow> ProgRig::TxFlow(const cw_flow_key& key) {
  cw_tx_flow f = {};
  if (bpf_map__lookup_elem(skel_->maps.cw_tx_flows, &key, sizeof(key), &f, sizeof(f), 0) != 0) return std::nullopt;
  return f;
}

void ProgRig::SetFlow(const cw_flow_key& key, const cw_flow& flow) {
  Require(bpf_map__update_elem(skel_->maps.cw_flows, &key, sizeof(key), &flow, sizeof(flow), 0) == 0, "flow");
}

void ProgRig::SetTxFlow(const cw_flow_key& key, const cw_tx_flow& flow) {
  Require(bpf_map__update_elem(skel_->maps.cw_tx_flows, &key, sizeof(key), &flow, sizeof(flow), 0) == 0, "tx flow");
}

void ProgRig::SetCarryOut(uint32_t index, const cw_carry_out& out) {
  Require(bpf_map__update_elem(skel_->maps.cw_carry_out, &index, sizeof(index), &out, sizeof(out), 0) == 0, "carry");
}

void ProgRig::SetCarryIn(const cw_carry_key& key, const cw_carry_in& in) {
  Require(bpf_map__update_elem(skel_->maps.cw_carry_in, &key, sizeof(key), &in, sizeof(in), 0) == 0, "carry");
}

cw_probe_tx ProgRig::ProbeTx(uint32_t index) {
  cw_probe_tx tx = {};
  Require(bpf_map__lookup_elem(skel_->maps.cw_probe_tx, &index, sizeof(index), &tx, sizeof(tx), 0) == 0, "probe tx");
  return tx;
}

void ProgRig::SetProbeTx(uint32_t index, const cw_probe_tx& tx) {
  Require(bpf_map__update_elem(skel_->maps.cw_probe_tx, &index, sizeof(index), &tx, sizeof(tx), 0) == 0, "probe tx");
}

std::vector<uint64_t> ProgRig::Counters() {
  int cpus = libbpf_num_possible_cpus();
  std::vector<cw_counters> per_cpu(static_cast<size_t>(cpus));
  uint32_t zero = 0;
  Require(bpf_map__lookup_elem(skel_->maps.cw_counters, &zero, sizeof(zero), per_cpu.data(),
                               per_cpu.size() * sizeof(cw_counters), 0) == 0,
          "counters");
  std::vector<uint64_t> sums(CW_COUNT_END);
  for (const cw_counters& c : per_cpu)
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += reinterpret_cast<const __u64*>(&c)[i];
  return sums;
}

std::string ProgRig::CounterChanges() {
  static const char* const names[] = {
#define CW_COUNTER_NAME(name, text) #name,
      CW_COUNTERS(CW_COUNTER_NAME)
#undef CW_COUNTER_NAME
  };
  std::vector<uint64_t> now = Counters();
  std::string changes;
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i] == counters_seen_[i] || i == CW_COUNT_rewritten) continue;
    if (!changes.empty()) changes += " ";
    changes += std::string(names[i]) + "=" + std::to_string(now[i] - counters_seen_[i]);
  }
  counters_seen_ = now;
  return changes;
}

uint64_t ProgRig::Rewritten() { return Counters()[CW_COUNT_rewritten]; }

std::vector<Bytes> ProgRig::Drain(bpf_map* map) {
  std::vector<Bytes> records;
  ring_buffer* ring = ring_buffer__new(
      bpf_map__fd(map),
      [](void* ctx, void* data, size_t size) {
        const auto* bytes = static_cast<const uint8_t*>(data);
        static_cast<std::vector<Bytes>*>(ctx)->emplace_back(bytes, bytes + size);
        return 0;
      },
      &records, nullptr);
  Require(ring != nullptr, "ring");
  ring_buffer__consume(ring);
  ring_buffer__free(ring);
  return records;
}

std::vector<Bytes> ProgRig::Events() { return Drain(skel_->maps.cw_event_ring); }
std::vector<Bytes> ProgRig::Probes() { return Drain(skel_->maps.cw_probe_ring); }
std::vector<Bytes> ProgRig::Messages() { return Drain(skel_->maps.cw_msg_ring); }

cw_flow_key FlowKeyOf(uint32_t saddr, uint32_t daddr, uint32_t qpn) {
  cw_flow_key key = {};
  memcpy(key.saddr, AddressBytes(saddr, kIp6).data(), 16);
  memcpy(key.daddr, AddressBytes(daddr, kIp6).data(), 16);
  key.dqpn = qpn;
  return key;
}

cw_pair_key PairKeyOf(uint32_t local, uint32_t remote) {
  cw_pair_key key = {};
  memcpy(key.local, AddressBytes(local, kIp6).data(), 16);
  memcpy(key.remote, AddressBytes(remote, kIp6).data(), 16);
  return key;
}

uint64_t MonotonicNs() {
  timespec t = {};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

// The kernel stamps a record that it makes: here one for a flow of its own.
uint64_t JiffiesNow(ProgRig& rig) {
  Frame f;
  f.saddr = 0xc6336401;
  f.dqpn = 0xfffffe;
  rig.Xdp(Build(f));
  return rig.Flow(FlowKeyOf(f.saddr, f.daddr, f.dqpn)).value().last_seen_jiffies;
}

}  // namespace cw::test
