// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/discovery_sim.h"

#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace cw::sim {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int kIfindex = 2;

double CpuS() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

uint64_t Mix(uint64_t x) {  // the finaliser of SplitMix64 (Steele, Lea, Flood 2014)
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

struct InFlight {
  int64_t at_ns;
  probe::TraceAnswer answer;
  bool operator<(const InFlight& other) const { return at_ns > other.at_ns; }
};

// One host, its peers, and what answers it.
class Tracer {
 public:
  explicit Tracer(const DiscoverySpec& spec)
      : spec_(spec),
        random_(spec.seed),
        monitor_(
            spec.monitor, [this](uint32_t pair, const probe::TraceProbe& trace) { Send(pair, trace); },
            [this](uint32_t pair, const probe::DiscoveryEvent& event) {
              if (event.kind == probe::DiscoveryEvent::Kind::kTable) built_ns_.try_emplace(pair, now_ns_);
            }) {
    for (uint32_t pair = 0; pair < static_cast<uint32_t>(spec.peers); ++pair) {
      monitor_.AddPair(pair, {Local(), Remote(pair)}, kIfindex, {});
      if (IsJobs(pair)) monitor_.SetActive(pair, true);
    }
  }

  // The job's peers are not those that were added first.
  bool IsJobs(uint32_t pair) const { return static_cast<int>(pair) >= spec_.peers - spec_.job_peers; }

  void RunUntil(int64_t end_ns, bool until_built) {
    while (now_ns_ < end_ns && !(until_built && built_ns_.size() == static_cast<size_t>(spec_.peers))) {
      for (; !in_flight_.empty() && in_flight_.top().at_ns <= now_ns_; in_flight_.pop()) {
        monitor_.OnAnswer(in_flight_.top().answer, now_ns_);
      }
      monitor_.Tick(now_ns_);
      int64_t next_ns = std::min(monitor_.NextTickNs(now_ns_), end_ns);
      if (!in_flight_.empty()) next_ns = std::min(next_ns, in_flight_.top().at_ns);
      now_ns_ = std::max(next_ns, now_ns_ + 1);
    }
  }

  int Missed() const {
    int missed = 0;
    for (uint32_t pair = 0; pair < static_cast<uint32_t>(spec_.peers); ++pair) {
      const probe::PathTable& table = monitor_.Find(pair)->table();
      std::set<int> spines;
      for (const probe::Path& path : table.paths) spines.insert(SpineOf(pair, path.port));
      missed +=
          std::max(0, std::min(spec_.spines, spec_.monitor.discovery.max_paths) - static_cast<int>(spines.size()));
    }
    return missed;
  }

  double VerifiedAgeS() const {
    std::vector<int64_t> ages_ns;
    for (uint32_t pair = 0; pair < static_cast<uint32_t>(spec_.peers); ++pair) {
      int64_t oldest_ns = now_ns_;
      for (const probe::Path& path : monitor_.Find(pair)->table().paths) {
        oldest_ns = std::min(oldest_ns, path.verified_ns);
      }
      ages_ns.push_back(now_ns_ - oldest_ns);
    }
    std::nth_element(ages_ns.begin(), ages_ns.begin() + static_cast<ptrdiff_t>(ages_ns.size() / 2), ages_ns.end());
    return static_cast<double>(ages_ns[ages_ns.size() / 2]) * 1e-9;
  }

  int64_t now_ns() const { return now_ns_; }
  const std::map<uint32_t, int64_t>& built_ns() const { return built_ns_; }
  uint64_t sent() const { return monitor_.sent(); }
  double most_per_switch_s() const { return most_per_switch_s_; }

 private:
  static Addr Local() { return Addr::FromV4(0x0a000001); }
  static Addr Remote(uint32_t pair) { return Addr::FromV4(0x0a010000 + pair); }
  int LeafOf(uint32_t pair) const { return static_cast<int>(pair) / spec_.hosts_per_leaf; }

  int SpineOf(uint32_t pair, uint16_t port) const {
    return static_cast<int>(Mix(spec_.seed << 48 ^ static_cast<uint64_t>(pair) << 16 ^ port) %
                            static_cast<uint64_t>(spec_.spines));
  }

  // From the port where the packet came in; TTL 4 is the host, which never answers.
  std::optional<Addr> Router(uint32_t pair, const probe::TraceProbe& trace) {
    const auto spine = static_cast<uint32_t>(SpineOf(pair, trace.port));
    if (trace.ttl == 1) return Addr::FromV4(0x0a800000);
    if (trace.ttl == 2) return Addr::FromV4(0x0a810000 + spine);
    if (trace.ttl == 3) return Addr::FromV4(0x0a900000 + static_cast<uint32_t>(LeafOf(pair)) * 256 + spine);
    return std::nullopt;
  }

  void Send(uint32_t pair, const probe::TraceProbe& trace) {
    const std::optional<Addr> router = Router(pair, trace);
    if (!router) return;
    std::vector<int64_t>& asked = asked_ns_[trace.ttl == 3 ? Addr::FromV4(0x0a900000 + LeafOf(pair)) : *router];
    asked.push_back(now_ns_);
    std::erase_if(asked, [this](int64_t at_ns) { return at_ns <= now_ns_ - kSecondNs; });
    most_per_switch_s_ = std::max(most_per_switch_s_, static_cast<double>(asked.size()));
    if (std::uniform_real_distribution<>(0, 1)(random_) < spec_.lost) return;
    in_flight_.push({now_ns_ + static_cast<int64_t>(spec_.round_trip_s * 1e9),
                     {*router, Local(), Remote(pair), trace.port, trace.ip_id}});
  }

  const DiscoverySpec spec_;
  std::mt19937_64 random_;
  int64_t now_ns_ = 0;
  std::map<uint32_t, int64_t> built_ns_;
  std::map<Addr, std::vector<int64_t>> asked_ns_;
  double most_per_switch_s_ = 0;
  std::priority_queue<InFlight> in_flight_;
  probe::PathMonitor monitor_;
};

}  // namespace

DiscoveryResult SimulateDiscovery(const DiscoverySpec& spec) {
  DiscoveryResult result;
  const size_t before_bytes = mallinfo2().uordblks;
  Tracer host(spec);
  double cpu_s = CpuS();
  host.RunUntil(static_cast<int64_t>(spec.deadline_s * 1e9), /*until_built=*/true);
  result.build_cpu_s = CpuS() - cpu_s;
  std::vector<int64_t> built_ns;
  for (const auto& [pair, at_ns] : host.built_ns()) {
    built_ns.push_back(at_ns);
    if (host.IsJobs(pair)) result.job_s = std::max(result.job_s, static_cast<double>(at_ns) * 1e-9);
  }
  std::sort(built_ns.begin(), built_ns.end());
  const auto at = [&](double share) {
    const auto i = static_cast<size_t>(share * (spec.peers - 1) + 0.5);
    return i < built_ns.size() ? static_cast<double>(built_ns[i]) * 1e-9 : -1;
  };
  result.first_s = at(0), result.half_s = at(0.5), result.p99_s = at(0.99), result.all_s = at(1);
  result.traces_per_pair = static_cast<double>(host.sent()) / spec.peers;
  result.missed = host.Missed();
  cpu_s = CpuS();
  host.RunUntil(host.now_ns() + static_cast<int64_t>(spec.then_s * 1e9), /*until_built=*/false);
  result.kept_cpu_share = (CpuS() - cpu_s) / spec.then_s;
  result.verified_age_s = host.VerifiedAgeS();
  result.most_per_switch_s = host.most_per_switch_s();
  result.mib = static_cast<double>(mallinfo2().uordblks - before_bytes) / 1024 / 1024;
  return result;
}

}  // namespace cw::sim
