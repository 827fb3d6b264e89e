// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/control_cause_setup.h"

#include <cmath>
#include <random>

namespace cw::control::cause_sim {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed * 7919 + 17) {}
  Setup Make(Cause injected);

 private:
  double Real(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  int Whole(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_); }
  bool Chance(double p) { return Real(0, 1) < p; }
  int HostOf(int leaf) { return leaf * kHostsPerLeaf + Whole(0, kHostsPerLeaf - 1); }
  FlowSpec Flow(int src, int dst, int slot);
  void Background();
  void Contention();
  void Incast();
  void SlowReceiver();
  void Harmless();

  std::mt19937_64 random_;
  Setup s_;
};

FlowSpec Draw::Flow(int src, int dst, int slot) {
  FlowSpec f{.src = src, .dst = dst, .slot = slot};
  f.window = 1 << Whole(5, 8);
  f.ack_every = 1 << Whole(0, 4);
  f.ack_slot = Whole(0, s_.spines - 1);
  return f;
}

// Flows of others that take little, and never the victim's ends.
void Draw::Background() {
  const int count = Whole(0, 5);
  for (int i = 0; i < count; ++i) {
    const int from = Whole(0, kLeaves - 1);
    FlowSpec f = Flow(HostOf(from), HostOf((from + Whole(1, kLeaves - 1)) % kLeaves), Whole(0, s_.spines - 1));
    if (f.src == s_.flows[0].src || f.dst == s_.flows[0].dst) continue;
    f.demand = Real(0.02, 0.12);
    f.burst = 1 << Whole(0, 4);
    s_.flows.push_back(f);
  }
}

// Elephants of others on one of the two fabric links that the victim takes.
void Draw::Contention() {
  const FlowSpec victim = s_.flows[0];
  const int leaf = victim.src / kHostsPerLeaf, to = victim.dst / kHostsPerLeaf;
  const bool up = Chance(0.5);
  if (up && s_.spines == 2) {  // both of the leaf's uplinks are full, the victim's with two flows, the other with two
    for (int i = 1; i <= 3; ++i) {
      const int dst_leaf = (leaf + 1 + i % 2) % kLeaves;
      FlowSpec f =
          Flow(leaf * kHostsPerLeaf + (victim.src + i) % kHostsPerLeaf,
               dst_leaf * kHostsPerLeaf + (victim.dst + i) % kHostsPerLeaf, i == 1 ? victim.slot : 1 - victim.slot);
      f.from_injection = true;
      s_.flows.push_back(f);
    }
    return;
  }
  if (!up && s_.spines == 2 && Chance(0.5)) {  // both links down to the receiver's leaf are full, likewise
    for (int i = 1; i <= 3; ++i) {
      const int src_leaf = i == 2 ? leaf : 3 - leaf - to;
      FlowSpec f = Flow(src_leaf * kHostsPerLeaf + (victim.src + i) % kHostsPerLeaf,
                        to * kHostsPerLeaf + (victim.dst + i) % kHostsPerLeaf, i == 1 ? victim.slot : 1 - victim.slot);
      f.from_injection = true;
      s_.flows.push_back(f);
    }
    return;
  }
  const int count = Whole(1, 3);
  for (int i = 0; i < count; ++i) {
    const int src_leaf = up ? leaf : 3 - leaf - to;
    const int dst_leaf = up ? (Chance(0.5) ? to : 3 - leaf - to) : to;
    const int src = src_leaf * kHostsPerLeaf + (victim.src + 1 + i) % kHostsPerLeaf;
    const int dst = dst_leaf * kHostsPerLeaf + (victim.dst + 1 + i) % kHostsPerLeaf;
    FlowSpec f = Flow(src, dst, victim.slot);
    f.from_injection = true;
    s_.flows.push_back(f);
  }
}

void Draw::Incast() {
  const FlowSpec victim = s_.flows[0];
  const int leaf = victim.src / kHostsPerLeaf, to = victim.dst / kHostsPerLeaf, third = 3 - leaf - to;
  const int count = Whole(1, 6);
  for (int i = 0; i < count; ++i) {
    const bool near = i % 2 == 0;  // with the victim's leaf, else of the third
    const int src = (near ? leaf : third) * kHostsPerLeaf + (victim.src + 1 + i / 2) % kHostsPerLeaf;
    FlowSpec f = Flow(src, victim.dst, (victim.slot + 1 + i / 2) % s_.spines);
    f.from_injection = true;
    s_.flows.push_back(f);
  }
}

void Draw::SlowReceiver() {
  s_.serve_share = Real(0.08, 0.65);
  switch (Whole(0, 2)) {
    case 0:
      return;  // handles every packet slowly
    case 1:
      s_.rnr_message = 1 << Whole(2, 6);
      s_.rnr_timer_s = Real(0.2e-3, 5e-3);
      return;
    default:  // stops now and then
      s_.serve_share = 0;
      s_.stall_s = Real(5e-3, 60e-3);
      s_.stall_every_s = s_.stall_s * Real(0.3, 2);
  }
}

// What must not be taken for a cause.
void Draw::Harmless() {
  const FlowSpec victim = s_.flows[0];
  switch (Whole(0, 3)) {
    case 0:
      return;
    case 1:  // dead both ways: the liveness rule's business
      s_.fault_spine = Whole(0, s_.spines - 1);
      s_.fault_up = Chance(0.5);
      s_.fault_forward = s_.fault_back = 1;
      return;
    case 2:  // others collide elsewhere
      for (int i = 1; i <= 2; ++i) {
        const int src = victim.src / kHostsPerLeaf * kHostsPerLeaf + (victim.src + i) % kHostsPerLeaf;
        const int dst = victim.dst / kHostsPerLeaf * kHostsPerLeaf + (victim.dst + i) % kHostsPerLeaf;
        FlowSpec f = Flow(src, dst, (victim.slot + 1) % s_.spines);
        f.from_injection = true;
        s_.flows.push_back(f);
      }
      return;
    default: {  // the host's other flow takes half of its NIC
      s_.nic_shared = true;
      FlowSpec f = Flow(victim.src, (victim.dst / kHostsPerLeaf) * kHostsPerLeaf + (victim.dst + 1) % kHostsPerLeaf,
                        (victim.slot + 1) % s_.spines);
      f.from_injection = true;
      s_.flows.push_back(f);
    }
  }
}

Setup Draw::Make(Cause injected) {
  s_.line_bps = 100e6 * (1 << Whole(0, 2));
  s_.spines = Whole(2, 6);
  s_.probe_s = 1e-3 * (1 << Whole(0, 2));
  const int leaf = Whole(0, 2);
  s_.flows.push_back(Flow(HostOf(leaf), HostOf((leaf + Whole(1, 2)) % kLeaves), Whole(0, s_.spines - 1)));
  Background();
  switch (injected) {
    case Cause::kFabricContention:
      Contention();
      break;
    case Cause::kIncast:
      Incast();
      break;
    case Cause::kSlowReceiver:
      SlowReceiver();
      break;
    case Cause::kSlowSender:
      s_.slow_demand = Real(0.03, 0.75);
      s_.slow_burst = 1 << Whole(0, 6);
      break;
    case Cause::kOneDirection:
    case Cause::kGreyLoss: {
      s_.fault_spine = Chance(0.7) ? s_.flows[0].slot : Whole(0, s_.spines - 1);
      s_.fault_up = Chance(0.5);
      const double share = injected == Cause::kOneDirection ? 1 : std::exp(Real(std::log(0.005), std::log(0.4)));
      (Chance(0.6) ? s_.fault_forward : s_.fault_back) = share;
      s_.windows = injected == Cause::kGreyLoss ? 5 : 3;
      break;
    }
    case Cause::kReordering:
      s_.fault_spine = s_.flows[0].slot;
      s_.fault_up = Chance(0.5);
      s_.late_share = std::exp(Real(std::log(0.005), std::log(0.2)));
      s_.late_s = Real(2, 20) * kPacketBits / s_.line_bps;
      s_.windows = 5;
      break;
    case Cause::kPacketSize:
    case Cause::kNoAcks:
    case Cause::kNone:
      Harmless();
      break;
  }
  if (Chance(0.5)) s_.cnp_interval_s *= 400e6 / s_.line_bps;  // as senders' timers scale with their links
  return s_;
}

}  // namespace

Setup DrawSetup(Cause injected, uint64_t seed) {
  return Draw(seed * 8 + static_cast<uint64_t>(injected)).Make(injected);
}

}  // namespace cw::control::cause_sim
