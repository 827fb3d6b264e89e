// SPDX-License-Identifier: Apache-2.0
// bench-dataplane: what one packet costs in our programs, beside a program that does nothing and xdp-filter, all by
// BPF_PROG_TEST_RUN in turns. Rows: the mean of many runs is one sample; n samples per case.
//
// Packets are the same in each run, so a data packet after the first is a retransmission to the trackers (one addition
// more than a new one). Where the program changes the packet (probe_reflect, egress_steered), restore.bpf.c restores it
// before each run and its cost, measured with a target that does nothing, is taken off. "floor": what the kernel alone
// asks for a sample and for a rewritten packet (floors.bpf.c).
#include <bpf/bpf.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "absl/strings/str_format.h"
#include "bench_floors.skel.h"
#include "bench_restore.skel.h"
#include "flood_drop.skel.h"
#include "maps/names.h"
#include "maps/wire.h"
#include "tests/bench/dataplane_frames.h"
#include "tests/bench/flood_frames.h"
#include "tests/bench/prog_run.h"
#include "tests/bench/restore.h"
#include "tests/bench/xdp_filter_peer.h"
#include "userspace/dataplane/dataplane.h"
#include "userspace/dataplane/jiffies.h"
#include "userspace/dataplane/presence.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/monotonic.h"

namespace cw::bench {
namespace {

constexpr int kSamples = 60, kWarmUp = 3;
constexpr int kRepeat = 100000;
constexpr int kFits = 8000;  // samples in a ring
constexpr uint32_t kQpnIn = 0x100, kQpnNative = 0x200, kQpnSteered = 0x300;
constexpr uint16_t kSteeredPort = 49153;
constexpr uint32_t kXdpDrop = 1, kXdpPass = 2, kXdpTx = 3, kTcUnspec = static_cast<uint32_t>(-1);

struct Case {
  std::string name, system;
  std::function<absl::StatusOr<double>()> run;  // ns
  std::vector<double> samples = {};
};

class Bench {
 public:
  absl::Status SetUp();
  absl::Status Measure();
  const std::vector<Case>& cases() const { return cases_; }
  ~Bench();

 private:
  absl::Status SetUpFloors();
  absl::Status SetUpMaps();
  absl::Status SetUpPeers();
  absl::Status SetUpPresence();
  void AddCases();
  absl::Status AddBadProbes();
  std::function<absl::StatusOr<double>()> Plain(int fd, std::string frame, uint32_t expected, int repeat = kRepeat);
  absl::StatusOr<double> Sampled();
  absl::StatusOr<double> SampleFloor();
  absl::StatusOr<double> Reflect();
  absl::StatusOr<double> Steered();
  absl::StatusOr<double> Blind();
  // Cost of the program `target` behind the restoring one, without the restoring.
  absl::StatusOr<double> Restored(int restore_fd, int targets_fd, int target, int noop, const std::string& frame,
                                  int repeat, uint32_t expected, std::function<void()> prepare);
  void FillRequests();

  dataplane::Options options_;
  std::unique_ptr<dataplane::Dataplane> plane_;
  bench_restore* restore_ = nullptr;
  flood_drop* drop_ = nullptr;
  bench_floors* floors_ = nullptr;
  std::unique_ptr<maps::MmapView<bench_request>> requests_;
  std::unique_ptr<maps::RingReader> ring_, floor_ring_;
  maps::UniqueFd filter_udp_, filter_rules_;
  std::unique_ptr<dataplane::Presence> presence_;
  std::unique_ptr<dataplane::Jiffies> jiffies_;
  std::string last_frame_;  // as a restored run left it
  uint32_t round_ = 0;
  uint64_t key_[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};  // the peer's
  uint64_t own_key_[2] = {0x1716151413121110, 0x1f1e1d1c1b1a1918};
  std::vector<Case> cases_;
};

Bench::~Bench() {
  flood_drop__destroy(drop_);
  bench_floors__destroy(floors_);
  bench_restore__destroy(restore_);
  if (plane_ != nullptr) plane_->DetachAllAndUnpin().IgnoreError();
}

absl::Status Bench::SetUp() {
  options_.instance = absl::StrFormat("bench-%d", getpid());
  auto plane = dataplane::Dataplane::Open(options_);
  if (!plane.ok()) return plane.status();
  plane_ = *std::move(plane);
  restore_ = bench_restore__open_and_load();
  if (restore_ == nullptr) return absl::ErrnoToStatus(errno, "load restore.bpf.c");
  auto requests_map = maps::BpfMap::Duplicate(bpf_map__fd(restore_->maps.requests));
  if (!requests_map.ok()) return requests_map.status();
  auto requests = maps::MmapView<bench_request>::Create(*std::move(requests_map));
  if (!requests.ok()) return requests.status();
  requests_ = std::make_unique<maps::MmapView<bench_request>>(*std::move(requests));
  auto ring = maps::RingReader::Create(plane_->probe_ring(), [](absl::Span<const uint8_t>) {});
  if (!ring.ok()) return ring.status();
  ring_ = *std::move(ring);
  if (auto s = SetUpFloors(); !s.ok()) return s;
  if (auto s = SetUpMaps(); !s.ok()) return s;
  if (auto s = SetUpPresence(); !s.ok()) return s;
  if (auto s = SetUpPeers(); !s.ok()) return s;
  AddCases();
  return AddBadProbes();
}

absl::Status Bench::SetUpFloors() {
  floors_ = bench_floors__open_and_load();
  if (floors_ == nullptr) return absl::ErrnoToStatus(errno, "load floors.bpf.c");
  const auto map = maps::BpfMap::Duplicate(bpf_map__fd(floors_->maps.floor_ring));
  if (!map.ok()) return map.status();
  auto ring = maps::RingReader::Create(*map, [](absl::Span<const uint8_t>) {});
  if (ring.ok()) floor_ring_ = *std::move(ring);
  return ring.status();
}

// One pair with three live paths: two to steer to, and the native port's. One flow on its native port, one steered.
absl::Status Bench::SetUpMaps() {
  cw_pair pair = {};
  HereAndThere(pair.key.local, pair.key.remote);
  for (int s = 0; s < 3; ++s) {
    pair.slot[s].port = s == 2 ? kNativePort : static_cast<uint16_t>(49152 + s);
    pair.slot[s].state = CW_SLOT_UP;
  }
  pair.live_mask = 7;
  pair.assign_mask = 3;
  pair.interval_ns = 1000000;
  plane_->pairs().Write(0, pair);
  cw_pair_keys keys = {};
  std::memcpy(keys.tx[0], own_key_, sizeof(own_key_));
  std::memcpy(keys.rx[0], key_, sizeof(key_));
  keys.valid = 1;
  if (auto s = plane_->keys().Put(0, keys); !s.ok()) return s;
  if (auto s = plane_->pair_index().Put(pair.key, 0); !s.ok()) return s;
  maps::CtlView::Store(plane_->ctl()[0].mode, CW_MODE_PROTECT);
  maps::CtlView::Store(plane_->ctl()[0].session, 1u);
  if (auto r = RunProgram(plane_->tc_fd(), RoceFrame(true, kQpnSteered, 1), 1); !r.ok()) return r.status();
  cw_flow_key key = {};
  HereAndThere(key.saddr, key.daddr);
  key.dqpn = kQpnSteered;
  restore_->bss->native_port = __builtin_bswap16(kNativePort);
  return plane_->flow_editor().Place(key, 1, kSteeredPort);
}

absl::Status Bench::SetUpPresence() {
  auto presence = dataplane::Presence::Enter(plane_->PinOf(CW_MAP_PRESENCE));
  if (!presence.ok()) return presence.status();
  presence_ = std::make_unique<dataplane::Presence>(*std::move(presence));
  const auto jiffies = dataplane::Jiffies::Create();
  if (jiffies.ok()) jiffies_ = std::make_unique<dataplane::Jiffies>(*jiffies);
  return jiffies.status();
}

absl::Status Bench::SetUpPeers() {
  auto udp = LoadXdpFilter("udp", {});
  if (!udp.ok()) return udp.status();
  auto rules = LoadXdpFilter("ipv4,udp", {"ip 10.0.0.77", "ip 10.0.0.78", "port 99 -p udp"});
  if (!rules.ok()) return rules.status();
  filter_udp_ = *std::move(udp);
  filter_rules_ = *std::move(rules);
  return absl::OkStatus();
}

std::function<absl::StatusOr<double>()> Bench::Plain(int fd, std::string frame, uint32_t expected, int repeat) {
  return [=]() -> absl::StatusOr<double> {
    const auto result = RunProgram(fd, frame, repeat);
    if (!result.ok()) return result.status();
    if (result->retval != expected) return absl::InternalError(absl::StrFormat("returned %d", int(result->retval)));
    return result->ns;
  };
}

// How many records a ring gives up.
int Emptied(maps::RingReader& ring) {
  int records = 0;
  for (absl::StatusOr<int> more = ring.Consume(); more.value_or(0) > 0; more = ring.Consume()) records += *more;
  return records;
}

// Every packet makes a record; the ring is emptied between runs and holds all of one run.
absl::StatusOr<double> Bench::Sampled() {
  const auto before = plane_->counters().Sum();
  maps::CtlView::Store(plane_->ctl()[0].sample_level_rx, 0u);
  const auto ns = Plain(plane_->xdp_fd(), RoceFrame(false, kQpnIn, 7), kXdpPass, kFits)();
  maps::CtlView::Store(plane_->ctl()[0].sample_level_rx, 32u);
  const int records = Emptied(*ring_);
  const auto after = plane_->counters().Sum();
  if (!ns.ok()) return ns;
  if (!before.ok() || !after.ok()) return absl::InternalError("counters");
  if (records != kFits || after->probe_ring_full != before->probe_ring_full) {
    return absl::InternalError(absl::StrFormat("%d records of %d", records, kFits));
  }
  return ns;
}

absl::StatusOr<double> Bench::SampleFloor() {
  const auto ns =
      Plain(bpf_program__fd(floors_->progs.bench_floor_sample), RoceFrame(false, kQpnIn, 7), kXdpPass, kFits)();
  const int records = Emptied(*floor_ring_);
  if (ns.ok() && records != kFits) return absl::InternalError(absl::StrFormat("%d records of %d", records, kFits));
  return ns;
}

void Bench::FillRequests() {
  for (uint32_t i = 0; i < BENCH_REQUESTS; ++i) {
    const std::string frame = RequestFrame(1, ++round_, key_);
    std::memcpy((*requests_)[i].frame, frame.data(), frame.size());
  }
  restore_->bss->next_request = 0;
}

absl::StatusOr<double> Bench::Restored(int restore_fd, int targets_fd, int target, int noop, const std::string& frame,
                                       int repeat, uint32_t expected, std::function<void()> prepare) {
  const uint32_t index = 0;
  double ns[2] = {};
  for (const bool ours : {false, true}) {
    const int fd = ours ? target : noop;
    if (bpf_map_update_elem(targets_fd, &index, &fd, BPF_ANY) != 0)
      return absl::ErrnoToStatus(errno, "set a tail call");
    prepare();
    const auto result = RunProgram(restore_fd, frame, repeat);
    if (!result.ok()) return result.status();
    if (ours && result->retval != expected)
      return absl::InternalError(absl::StrFormat("returned %d", int(result->retval)));
    if (ours) last_frame_ = result->frame;
    ns[ours] = result->ns;
  }
  const auto empty = RunProgram(noop, frame, repeat);
  if (!empty.ok()) return empty.status();
  return ns[1] - ns[0] + empty->ns;
}

absl::StatusOr<double> Bench::Reflect() {
  const auto before = plane_->counters().Sum();
  const auto ns =
      Restored(bpf_program__fd(restore_->progs.bench_restore_request), bpf_map__fd(restore_->maps.xdp_target),
               plane_->xdp_fd(), bpf_program__fd(restore_->progs.bench_noop_xdp), RequestFrame(1, 1, key_),
               BENCH_REQUESTS, kXdpTx, [&] { FillRequests(); });
  const auto after = plane_->counters().Sum();
  if (!ns.ok() || !before.ok() || !after.ok()) return ns;
  if (after->probe_requests - before->probe_requests != BENCH_REQUESTS) {
    return absl::InternalError(
        absl::StrFormat("%d of %d requests answered", after->probe_requests - before->probe_requests, BENCH_REQUESTS));
  }
  return ns;
}

absl::StatusOr<double> Bench::Steered() {
  const auto ns = Restored(bpf_program__fd(restore_->progs.bench_restore_port), bpf_map__fd(restore_->maps.tc_target),
                           plane_->tc_fd(), bpf_program__fd(restore_->progs.bench_noop_tc),
                           RoceFrame(true, kQpnSteered, 7), kRepeat, kTcUnspec, [] {});
  if (!ns.ok()) return ns;
  uint16_t port = 0;
  std::memcpy(&port, &last_frame_[BENCH_SPORT_OFFSET], sizeof(port));
  if (__builtin_bswap16(port) != kSteeredPort) return absl::InternalError("the packet was not rewritten");
  return ns;
}

// Nobody probes, so each packet asks whether the agent is there; it is.
absl::StatusOr<double> Bench::Blind() {
  cw_ctl& ctl = plane_->ctl()[0];
  plane_->pairs()[0].round_jiffies = jiffies_->AtNs(lab::MonotonicNs()) - 1000;
  maps::CtlView::Store(ctl.blind_jiffies, uint16_t{50});
  maps::CtlView::Store(ctl.stuck_jiffies, UINT16_MAX);
  const auto ns = Plain(plane_->tc_fd(), RoceFrame(true, kQpnNative, 7), kTcUnspec)();
  maps::CtlView::Store(ctl.blind_jiffies, uint16_t{0});
  if (ctl.alone) return absl::InternalError("the program did not find the agent");
  return ns;
}

void Bench::AddCases() {
  const std::string in = RoceFrame(false, kQpnIn, 7), native = RoceFrame(true, kQpnNative, 7);
  const int noop_xdp = bpf_program__fd(restore_->progs.bench_noop_xdp),
            noop_tc = bpf_program__fd(restore_->progs.bench_noop_tc);
  cases_ = {
      {"ingress_roce", "noop", Plain(noop_xdp, in, kXdpPass)},
      {"ingress_roce", "xdp_filter_udp", Plain(filter_udp_.get(), in, kXdpPass)},
      {"ingress_roce", "xdp_filter_rules", Plain(filter_rules_.get(), in, kXdpPass)},
      {"ingress_other", "cwfabric", Plain(plane_->xdp_fd(), OtherFrame(false), kXdpPass)},
      {"ingress_roce", "cwfabric", Plain(plane_->xdp_fd(), in, kXdpPass)},
      {"ingress_sampled", "cwfabric", [this] { return Sampled(); }},
      {"ingress_sampled", "floor", [this] { return SampleFloor(); }},
      {"probe_reflect", "cwfabric", [this] { return Reflect(); }},
      {"egress_roce", "noop", Plain(noop_tc, native, kTcUnspec)},
      {"egress_other", "cwfabric", Plain(plane_->tc_fd(), OtherFrame(true), kTcUnspec)},
      {"egress_roce", "cwfabric", Plain(plane_->tc_fd(), native, kTcUnspec)},
      {"egress_blind", "cwfabric", [this] { return Blind(); }},
      {"egress_steered", "cwfabric", [this] { return Steered(); }},
      {"egress_steered", "floor", Plain(bpf_program__fd(floors_->progs.bench_floor_rewrite), native, kTcUnspec)},
  };
}

// What nobody may believe, beside a program that drops it unseen. Those that carry a MAC are of a round far ahead, so
// that nothing but the MAC refuses them.
absl::Status Bench::AddBadProbes() {
  drop_ = flood_drop__open_and_load();
  if (drop_ == nullptr) return absl::ErrnoToStatus(errno, "load flood_drop.bpf.c");
  constexpr uint32_t kAhead = 1u << 30;
  const GenuineProbes genuine = {.request = RequestFrame(1, ++round_, key_),
                                 .reply = ProbeFrame(false, CW_PROBE_REPLY, 1, 1, key_),
                                 .own = ProbeFrame(true, CW_PROBE_REQUEST, 1, kAhead, own_key_)};
  const auto answered = RunProgram(plane_->xdp_fd(), genuine.request, 1);
  if (!answered.ok()) return answered.status();
  if (answered->retval != kXdpTx) return absl::InternalError("a request was not answered");
  for (const BadProbe kind : kBadProbes) {
    const std::string frame = MakeBad(kind, genuine), name = "bad_" + NameOf(kind);
    const uint32_t verdict = kind == BadProbe::kMalformed ? kXdpPass : kXdpDrop;
    cases_.push_back({name, "cwfabric", Plain(plane_->xdp_fd(), frame, verdict)});
    cases_.push_back({name, "drop", Plain(bpf_program__fd(drop_->progs.bench_flood_drop), frame, kXdpDrop)});
  }
  return absl::OkStatus();
}

absl::Status Bench::Measure() {
  for (int i = -kWarmUp; i < kSamples; ++i) {
    for (Case& c : cases_) {
      const auto ns = c.run();
      if (!ns.ok())
        return absl::Status(ns.status().code(), c.name + " " + c.system + ": " + std::string(ns.status().message()));
      if (i >= 0) c.samples.push_back(*ns);
    }
  }
  return absl::OkStatus();
}

const std::vector<double>& Samples(const std::vector<Case>& cases, const std::string& name, const std::string& system) {
  for (const Case& c : cases) {
    if (c.name == name && c.system == system) return c.samples;
  }
  abort();  // a name in the table of targets below is wrong
}

// The median of the ratios turn by turn: peers stand beside each other in a turn, so that a machine that is slow for
// some seconds is so to both.
double PairedRatio(const std::vector<double>& ours, const std::vector<double>& peer) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / peer[i]);
  return Quantile(ratios, 0.5);
}

// Ratios between figures of the same run; the least of many samples is the least disturbed by the machine.
void PrintRatios(const std::vector<Case>& cases) {
  struct Target {
    const char *name, *peer;
    double at_most;
  };
  printf("\n%-18s %-18s %10s %10s %10s %8s\n", "case", "peer", "by turns", "of medians", "of minima", "target");
  for (const Target& t :
       {Target{"ingress_other", "xdp_filter_udp", 1.0}, Target{"ingress_roce", "xdp_filter_rules", 0.8},
        Target{"ingress_sampled", "xdp_filter_rules", 1.4}, Target{"egress_steered", "xdp_filter_rules", 1.4}}) {
    const auto& ours = Samples(cases, t.name, "cwfabric");
    const auto& peer = Samples(cases, "ingress_roce", t.peer);
    const double ratio = PairedRatio(ours, peer);
    printf("%-18s %-18s %10.2f %10.2f %10.2f %8.2f  %s\n", t.name, t.peer, ratio,
           Quantile(ours, 0.5) / Quantile(peer, 0.5), Quantile(ours, 0) / Quantile(peer, 0), t.at_most,
           ratio <= t.at_most ? "met" : "missed");
  }
}

// What a sample or a rewrite adds to a packet, and how much of that the kernel's helpers ask for in any program.
void PrintFloors(const std::vector<Case>& cases) {
  for (const auto& [name, without] :
       {std::pair{"ingress_sampled", "ingress_roce"}, {"egress_steered", "egress_roce"}}) {
    const auto median = [&](const char* of, const char* system) { return Quantile(Samples(cases, of, system), 0.5); };
    printf("%-18s adds %.1f ns, of which the kernel's helpers take %.1f\n", name,
           median(name, "cwfabric") - median(without, "cwfabric"), median(name, "floor") - median(without, "noop"));
  }
}

int Main(int argc, char** argv) {
  Bench bench;
  absl::Status status = bench.SetUp();
  if (status.ok()) status = bench.Measure();
  Report report("dataplane");
  for (const Case& c : bench.cases()) report.Add(c.name, c.system, "cost", "ns", c.samples);
  if (status.ok()) status = report.Write(OutPath(argc, argv, "build/bench/dataplane.json"));
  if (!status.ok()) {
    fprintf(stderr, "bench-dataplane: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  printf("%s", report.Table().c_str());
  PrintRatios(bench.cases());
  PrintFloors(bench.cases());
  return 0;
}

}  // namespace
}  // namespace cw::bench

int main(int argc, char** argv) { return cw::bench::Main(argc, argv); }
