// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/recovery_sim.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "maps/wire.h"
#include "tests/sim/host_probes.h"
#include "tests/unit/bpf_judge.h"
#include "userspace/probe/doubt.h"

namespace cw::sim {
namespace {

constexpr int64_t kPathNs = 10'000;           // one way
constexpr int64_t kGapNs = 1'000;             // between two probes of a round
constexpr int64_t kDoubtNs = 10'000'000'000;  // as probe::ProberOptions
constexpr int64_t kBusyNs = 100'000'000;
constexpr uint32_t kSession = 1, kPeerSession = 2;
constexpr double kWireBytes = 14 + 20 + CW_PROBE_UDP_LEN + 4 + 20;  // Ethernet, IPv4, FCS, preamble and gap

struct PairState {
  cw_pair pair = {};  // ours
  cw_pair peer = {};  // what the peer received
  cw_probe_tx tx = {};
  uint32_t round = 0;
  bool carries_data = false;
  bool look_ahead = false;
  probe::DoubtMemory doubt;
  uint32_t victim = 0;  // slot
  bool hit = false;     // since the cut
  int64_t dead_ns = 0;  // the verdict; 0: none
};

// A packet under way: a request to the peer, or its reply.
struct Packet {
  int64_t at_ns = 0;
  bool reply = false;
  uint32_t pair = 0, round = 0, slot = 0;
  int64_t t2_ns = 0;
  std::array<uint16_t, CW_ROUNDS> arrived{};
  bool operator>(const Packet& o) const { return at_ns > o.at_ns; }
};

// One host from its start to the last verdict after a cut.
class Host {
 public:
  Host(const RecoverySpec& spec, uint64_t seed);
  void RunUntil(int64_t end_ns);
  void Cut();
  bool Told() const { return untold_ == 0; }
  int64_t now_ns() const { return now_ns_; }
  int64_t WarmNs();

  probe::Cadence& cadence() { return cadence_; }
  uint64_t probes() const { return probes_; }
  const std::vector<std::unique_ptr<PairState>>& pairs() const { return pairs_; }
  int wrong() const { return wrong_; }

 private:
  static bool Lost(const PairState& p, uint32_t slot) { return p.hit && slot == p.victim; }
  int64_t DelayNs(const PairState& p);
  void Tick();
  void LookAtAnswers();
  void Prepare(uint32_t index);
  void Judge(uint32_t index);
  void Arrive(const Packet& request);
  void TakeReply(const Packet& reply);

  const RecoverySpec& spec_;
  std::mt19937_64 random_;
  probe::Cadence cadence_;
  std::vector<std::unique_ptr<PairState>> pairs_;
  std::vector<uint32_t> due_;
  std::deque<std::pair<int64_t, uint32_t>> answers_;
  std::priority_queue<Packet, std::vector<Packet>, std::greater<>> packets_;
  int64_t now_ns_ = 1'000'000'000;
  uint64_t probes_ = 0;
  int untold_ = 0;
  int wrong_ = 0;
};

Host::Host(const RecoverySpec& spec, uint64_t seed) : spec_(spec), random_(seed), cadence_(AgentCadence(spec.probe)) {
  AddPeers(spec.probe, spec.active_peers, spec.idle_peers, spec.slots, cadence_);
  const int64_t active_ns = absl::ToInt64Nanoseconds(spec.probe.active_interval);
  // As the agent sets it: 15 ms of rounds at least.
  const int64_t half_factor = std::max<int64_t>(5, 5'000'000 / active_ns);
  for (int p = 0; p < spec.active_peers + spec.idle_peers; ++p) {
    auto state = std::make_unique<PairState>();
    state->carries_data = p < spec.active_peers;
    state->victim = static_cast<uint32_t>(random_() % static_cast<uint64_t>(spec.slots));
    state->pair.interval_ns = static_cast<uint32_t>(cadence_.IntervalNs(static_cast<uint32_t>(p)));
    state->pair.half_dead_rounds = static_cast<uint32_t>(spec.liveness.misses * half_factor);
    for (int s = 0; s < spec.slots; ++s) {
      state->pair.slot[s].port = static_cast<uint16_t>(49152 + s);
      state->pair.slot[s].state = CW_SLOT_NEW;
    }
    pairs_.push_back(std::move(state));
  }
}

// Until every pair has been probed some times, and a random part of a round.
int64_t Host::WarmNs() {
  const int64_t slowest_ns = cadence_.IntervalNs(static_cast<uint32_t>(pairs_.size() - 1));
  const int64_t active_ns = cadence_.IntervalNs(0);
  return 4 * std::max(slowest_ns, active_ns) +
         static_cast<int64_t>(random_() % static_cast<uint64_t>(std::max(slowest_ns, active_ns)));
}

int64_t Host::DelayNs(const PairState& p) {
  const double most = p.carries_data ? spec_.queue_ns : 1000;
  return kPathNs + static_cast<int64_t>(std::uniform_real_distribution<double>(0, most)(random_));
}

void Host::RunUntil(int64_t end_ns) {
  while (true) {
    const int64_t tick_ns =
        std::max(now_ns_, std::min(cadence_.NextWakeNs(), answers_.empty() ? INT64_MAX : answers_.front().first));
    const int64_t packet_ns = packets_.empty() ? INT64_MAX : packets_.top().at_ns;
    if (std::min(tick_ns, packet_ns) > end_ns) break;
    if (packet_ns < tick_ns) {
      const Packet packet = packets_.top();
      packets_.pop();
      now_ns_ = std::max(now_ns_, packet.at_ns);
      packet.reply ? TakeReply(packet) : Arrive(packet);
    } else {
      now_ns_ = tick_ns;
      Tick();
    }
  }
  now_ns_ = std::max(now_ns_, end_ns);
}

// The prober's loop (userspace/probe/prober.cc) without a thread, from here to Judge.
void Host::Tick() {
  LookAtAnswers();
  cadence_.TakeDue(now_ns_, &due_);
  for (const uint32_t index : due_) Prepare(index);
  for (const uint32_t index : due_) {
    pairs_[index]->pair.interval_ns = static_cast<uint32_t>(std::min<int64_t>(cadence_.IntervalNs(index), UINT32_MAX));
  }
}

void Host::LookAtAnswers() {
  for (; !answers_.empty() && answers_.front().first <= now_ns_; answers_.pop_front()) {
    pairs_[answers_.front().second]->look_ahead = false;
    Judge(answers_.front().second);
  }
}

void Host::Prepare(uint32_t index) {
  PairState& p = *pairs_[index];
  Judge(index);
  ++p.round;
  const auto interval = static_cast<uint32_t>(std::min<int64_t>(cadence_.IntervalNs(index), UINT32_MAX));
  p.pair.interval_ns = std::max(p.pair.interval_ns, interval);
  const auto slots = static_cast<uint32_t>(spec_.slots);
  for (uint32_t i = 0; i < slots; ++i) {
    const uint32_t slot = (p.round + i) % slots;
    const int64_t t1_ns = now_ns_ + i * kGapNs;
    cw_rounds_leave(&p.pair, &p.tx, kSession, p.round, slot, static_cast<uint64_t>(t1_ns), 0);
    ++probes_;
    if (Lost(p, slot)) continue;
    packets_.push({.at_ns = t1_ns + DelayNs(p), .pair = index, .round = p.round, .slot = slot});
  }
  const int64_t look_ns = probe::LookAfterNs(interval, absl::ToInt64Nanoseconds(spec_.probe.active_interval));
  if (!p.carries_data || p.look_ahead || look_ns == 0) return;
  p.look_ahead = true;
  answers_.emplace_back(now_ns_ + look_ns, index);
}

void Host::Judge(uint32_t index) {
  PairState& p = *pairs_[index];
  const probe::DoubtVerdict verdict =
      probe::JudgeDoubt(p.pair, (1u << spec_.slots) - 1, p.round, p.carries_data, now_ns_, kDoubtNs, p.doubt);
  cadence_.SetActive(index, verdict.active, now_ns_);
  cadence_.SetDoubt(index, verdict.hurry, now_ns_);
}

void Host::Arrive(const Packet& request) {
  PairState& p = *pairs_[request.pair];
  if (cw_rounds_admit(&p.peer, kSession, request.round, request.slot) == CW_REPLAYED) return;
  // Answers take the peer's paths in turn.
  const uint32_t back = (request.slot + request.round) % static_cast<uint32_t>(spec_.slots);
  if (Lost(p, back)) return;
  Packet reply = request;
  reply.reply = true;
  reply.t2_ns = now_ns_;
  reply.at_ns = now_ns_ + DelayNs(p);
  for (uint32_t i = 0; i < CW_ROUNDS; ++i) {
    reply.arrived[i] =
        static_cast<uint16_t>(cw_round_mask_of(&p.peer.rcvd[(request.round - i) & (CW_ROUNDS - 1)], request.round - i));
  }
  packets_.push(reply);
}

void Host::TakeReply(const Packet& reply) {
  PairState& p = *pairs_[reply.pair];
  const test::SeenReply seen{.responder_session = kPeerSession,
                             .round = reply.round,
                             .slot = reply.slot,
                             .t2 = static_cast<uint64_t>(reply.t2_ns),
                             .now = static_cast<uint64_t>(now_ns_),
                             .arrived = reply.arrived};
  test::TakeReply(seen, static_cast<uint32_t>(spec_.liveness.misses), static_cast<uint32_t>(spec_.liveness.revive),
                  &p.pair, &p.tx, [&](uint32_t slot, int, int to) {
                    if (to != CW_SLOT_DEAD) return;
                    if (!Lost(p, slot)) ++wrong_;
                    if (!Lost(p, slot) || p.dead_ns != 0) return;
                    p.dead_ns = now_ns_;
                    --untold_;
                  });
}

// Data on the path was acknowledged until now: the kernel believes in a path for as long as that is younger than its
// probes.
void Host::Cut() {
  const size_t lone = random_() % static_cast<uint64_t>(std::max(1, spec_.active_peers));
  for (size_t i = 0; i < pairs_.size(); ++i) {
    PairState* p = pairs_[i].get();
    p->hit = !spec_.lone || i == lone;
    untold_ += p->hit;
    if (!p->hit || !p->carries_data) continue;
    cw_slot& slot = p->pair.slot[p->victim];
    slot.acked_round = p->pair.cur_round;
    slot.acked_ns = static_cast<uint64_t>(now_ns_);
  }
}

Times TimesOf(std::vector<double>& took) {
  if (took.empty()) return {};
  std::sort(took.begin(), took.end());
  return {.n = static_cast<int>(took.size()),
          .p50_s = took[took.size() / 2],
          .p99_s = took[took.size() * 99 / 100],
          .most_s = took.back()};
}

}  // namespace

double ProbeBits() { return 8 * kWireBytes; }

RecoveryResult SimulateRecovery(const RecoverySpec& spec) {
  RecoveryResult out;
  std::vector<double> active, idle;
  double probes = 0, seconds = 0;
  for (int c = 0; c < spec.cuts; ++c) {
    Host host(spec, spec.seed * 100'000 + static_cast<uint64_t>(c));
    out.active_interval_s = static_cast<double>(host.cadence().IntervalNs(0)) / 1e9;
    out.idle_interval_s =
        static_cast<double>(host.cadence().IntervalNs(static_cast<uint32_t>(host.pairs().size() - 1))) / 1e9;
    const int64_t begun_ns = host.now_ns();
    host.RunUntil(begun_ns + host.WarmNs());
    probes += static_cast<double>(host.probes());
    seconds += static_cast<double>(host.now_ns() - begun_ns) / 1e9;
    host.Cut();
    const int64_t cut_ns = host.now_ns(), end_ns = cut_ns + static_cast<int64_t>(spec.deadline_s * 1e9);
    while (!host.Told() && host.now_ns() < end_ns) {
      const uint64_t before = host.probes();
      host.RunUntil(host.now_ns() + kBusyNs);
      out.most_probes_per_s =
          std::max(out.most_probes_per_s, static_cast<double>(host.probes() - before) * 1e9 / kBusyNs);
    }
    for (const auto& p : host.pairs()) {
      if (!p->hit) continue;
      if (p->dead_ns == 0) {
        ++out.missed;
      } else {
        (p->carries_data ? active : idle).push_back(static_cast<double>(p->dead_ns - cut_ns) / 1e9);
      }
    }
    out.wrong += host.wrong();
  }
  out.probes_per_s = seconds > 0 ? probes / seconds : 0;
  out.active = TimesOf(active);
  out.idle = TimesOf(idle);
  return out;
}

}  // namespace cw::sim
