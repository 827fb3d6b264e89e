// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/link_model.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <random>

#include "tests/unit/control_dcqcn.h"

namespace cw::sim {
namespace {

constexpr double kWarmS = 0.02;
constexpr double kStepS = 10e-6;  // between samples
constexpr int kSamples = 4001;    // not a whole number of windows
constexpr int kPerMean = 1000;    // samples of 10 ms

// A queue, and the one beside it that marks go by.
class MarkedQueue {
 public:
  explicit MarkedQueue(const LinkSpec& spec) : spec_(spec) {}
  double WaitS(double t) const { return std::max(0.0, free_at_ - t); }
  double MarkChance(double t) const {
    const double queue_s = std::max(0.0, marking_s_ - (t - marking_at_) * spec_.drain);
    if (queue_s > 4 * spec_.mark_from_s) return 1;
    return std::max(0.0, 0.2 * (queue_s / spec_.mark_from_s - 1) / 3);
  }
  void Add(double t) {
    const double packet_s = spec_.packet_bits / spec_.bps;
    free_at_ = std::max(free_at_, t) + packet_s;
    marking_s_ = std::max(0.0, marking_s_ - (t - marking_at_) * spec_.drain) + packet_s;
    marking_at_ = t;
  }

 private:
  const LinkSpec& spec_;
  double free_at_ = 0, marking_s_ = 0, marking_at_ = 0;
};

struct Event {
  double t;
  int flow;
  bool cnp;
  bool operator>(const Event& o) const { return t > o.t; }
};

// So that links with as many flows are not at the same place of the run.
uint32_t Mixed(uint32_t link, uint64_t lap) {
  uint64_t v = (uint64_t{link} << 32 | (lap & 0xffffffff)) * 0x9e3779b97f4a7c15;
  v = (v ^ v >> 29) * 0xbf58476d1ce4e5b9;
  return static_cast<uint32_t>(v >> 32);
}

}  // namespace

LinkModel::LinkModel(const LinkSpec& spec, uint64_t seed) : spec_(spec) {
  samples_.resize(kMostFlows + 1);
  summaries_.resize(kMostFlows + 1);
  for (int n = 1; n <= kMostFlows; ++n) Run(n, seed);
}

void LinkModel::Run(int flows, uint64_t seed) {
  std::mt19937_64 random(seed * 1000 + static_cast<uint64_t>(flows));
  std::uniform_real_distribution<double> uniform(0, 1);
  MarkedQueue queue(spec_);
  std::vector<control::DcqcnSender> senders(flows, control::DcqcnSender(spec_.bps, spec_.cnp_interval_s));
  std::vector<double> last_cnp(flows, -1);
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  for (int f = 0; f < flows; ++f) events.push({uniform(random) * 1e-6, f, false});
  std::vector<Sample>& out = samples_[flows];
  double sent = 0, marked = 0, next_sample_s = kWarmS;
  while (static_cast<int>(out.size()) < kSamples) {
    const Event e = events.top();
    events.pop();
    for (; next_sample_s <= e.t && static_cast<int>(out.size()) < kSamples; next_sample_s += kStepS) {
      out.push_back(
          {static_cast<float>(1e9 * queue.WaitS(next_sample_s)), static_cast<float>(queue.MarkChance(next_sample_s))});
    }
    if (e.cnp) {
      senders[e.flow].OnCnp(e.t);
      continue;
    }
    const bool ce = uniform(random) < queue.MarkChance(e.t);
    queue.Add(e.t);
    const double done = e.t + queue.WaitS(e.t);
    if (e.t >= kWarmS) ++sent;
    if (e.t >= kWarmS && ce) ++marked;
    if (ce && done - last_cnp[e.flow] >= spec_.cnp_interval_s) {
      last_cnp[e.flow] = done;
      events.push({done + spec_.round_trip_s, e.flow, true});
    }
    // A NIC's wire gives packets an even pace; rates below it come from timers, which are not so even.
    const double bps = senders[e.flow].Rate(e.t);
    const double gap_s = bps < spec_.sender_bps ? spec_.packet_bits / bps * (0.95 + 0.1 * uniform(random))
                                                : spec_.packet_bits / spec_.sender_bps * (1 + 0.01 * uniform(random));
    events.push({e.t + gap_s, e.flow, false});
  }
  Summary& s = summaries_[flows];
  std::vector<double> means;
  for (int i = 0; i + kPerMean <= kSamples; i += kPerMean) {
    double sum = 0;
    for (int k = i; k < i + kPerMean; ++k) sum += out[k].wait_ns;
    means.push_back(sum / kPerMean);
  }
  for (const double m : means) s.wait_ns += m / static_cast<double>(means.size());
  for (const double m : means) s.swing_ns += (m - s.wait_ns) * (m - s.wait_ns) / static_cast<double>(means.size());
  s.swing_ns = std::sqrt(s.swing_ns);
  s.mark_share = sent > 0 ? marked / sent : 0;
  s.utilization = sent * spec_.packet_bits / (spec_.bps * kStepS * kSamples);
}

LinkModel::Sample LinkModel::At(int flows, uint32_t link, int64_t t_ns) const {
  if (flows <= 0) return {};
  const auto step = static_cast<uint64_t>(t_ns / static_cast<int64_t>(1e9 * kStepS));
  return samples_[std::min(flows, kMostFlows)][(step + Mixed(link, step / kSamples)) % kSamples];
}

const LinkModel::Summary& LinkModel::Of(int flows) const { return summaries_[std::clamp(flows, 0, kMostFlows)]; }

}  // namespace cw::sim
