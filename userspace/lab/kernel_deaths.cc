// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/kernel_deaths.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "maps/counters.h"
#include "maps/names.h"
#include "maps/views.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/monotonic.h"
#include "userspace/model/addr.h"

namespace cw::lab {
namespace {

using maps::PairsView;

bool InUse(const cw_pair& pair) {
  return std::any_of(std::begin(pair.key.remote), std::end(pair.key.remote), [](uint8_t byte) { return byte != 0; });
}

}  // namespace

struct KernelDeaths::Host {
  using Slots = std::array<SlotLook, CW_MAX_SLOTS>;

  static absl::StatusOr<std::unique_ptr<Host>> Open(const Fabric& fabric, int number) {
    const std::string pins = absl::StrCat(CW_PIN_ROOT, "/", DescribeAgentHost(fabric, number).instance, "/");
    absl::StatusOr<maps::BpfMap> counters_map = maps::BpfMap::OpenPinned(pins + CW_MAP_COUNTERS);
    if (!counters_map.ok()) return counters_map.status();
    absl::StatusOr<maps::BpfMap> pairs_map = maps::BpfMap::OpenPinned(pins + CW_MAP_PAIRS);
    if (!pairs_map.ok()) return pairs_map.status();
    absl::StatusOr<maps::CountersView> counters = maps::CountersView::Create(*std::move(counters_map));
    if (!counters.ok()) return counters.status();
    absl::StatusOr<PairsView> pairs = PairsView::Create(*std::move(pairs_map));
    if (!pairs.ok()) return pairs.status();
    const absl::StatusOr<cw_counters> at_start = counters->Sum();
    if (!at_start.ok()) return at_start.status();
    std::unique_ptr<Host> host(
        new Host{number, pins + CW_MAP_COUNTERS, *std::move(counters), *std::move(pairs), *at_start, {}, {}});
    host->last.resize(host->pairs.size());
    host->rounds.resize(host->pairs.size());
    host->Look(MonotonicNs(), [](uint32_t, size_t, const SlotDeaths&) {});
    return host;
  }

  // found(pair, slot, what died since the last look).
  template <typename Found>
  void Look(int64_t now_ns, const Found& found) {
    for (uint32_t index = 0; index < pairs.size(); ++index) {
      const cw_pair& pair = pairs[index];
      if (!InUse(pair)) continue;
      rounds[index].Look(now_ns, PairsView::Load(pair.cur_round));
      for (size_t s = 0; s < CW_MAX_SLOTS; ++s) {
        const SlotLook now{PairsView::Load(pair.slot[s].port), PairsView::Load(pair.slot[s].deaths)};
        SlotLook& before = last[index][s];
        if (const SlotDeaths died = DeathsBetween(before, now); died.times > 0) found(index, s, died);
        before = now;
      }
    }
  }

  int number;
  std::string counters_pin;
  maps::CountersView counters;
  PairsView pairs;
  cw_counters at_start;
  std::vector<Slots> last;          // by pair
  std::vector<Standstills> rounds;  // by pair: of the prober's
};

std::string SceneText(const DeathScene& scene) {
  return absl::StrFormat(
      "last arrival %.1f ms before the newest of the pair, data acknowledged %.1f ms ago, largest jump %u us, last "
      "reply "
      "%.1f ms ago; no probes sent for %.1f ms, by the peer for %.1f ms",
      scene.behind_ms, scene.data_age_ms, scene.jump_us, scene.reply_age_ms, scene.prober_still_ms,
      scene.peer_still_ms);
}

SlotDeaths DeathsBetween(const SlotLook& before, const SlotLook& now) {
  const uint32_t more = now.deaths >= before.deaths ? now.deaths - before.deaths : 0;
  if (now.port == 0) return {before.port, before.port == 0 ? 0 : more};
  if (now.port == before.port && now.deaths >= before.deaths) return {now.port, more};
  return {now.port, now.deaths};
}

KernelDeaths::KernelDeaths() = default;

absl::StatusOr<std::unique_ptr<KernelDeaths>> KernelDeaths::Start(const Fabric& fabric, absl::Duration period) {
  std::unique_ptr<KernelDeaths> deaths(new KernelDeaths);
  for (int number = 0; number < fabric.hosts(); ++number) {
    absl::StatusOr<std::unique_ptr<Host>> host = Host::Open(fabric, number);
    if (!host.ok()) return host.status();
    deaths->hosts_.push_back(*std::move(host));
  }
  deaths->thread_ = std::thread([self = deaths.get(), period] {
    // Slots of dead paths are soon given to others. Without the right to it, some deaths are untraced on a busy
    // machine.
    const sched_param above_others{.sched_priority = 1};
    (void)pthread_setschedparam(pthread_self(), SCHED_FIFO, &above_others);
    while (!self->stop_.load()) {
      absl::SleepFor(period);
      self->Look();
    }
  });
  return deaths;
}

KernelDeaths::~KernelDeaths() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

DeathScene KernelDeaths::SceneOf(const Host& host, uint32_t index, size_t slot, int64_t now_ns) const {
  const cw_pair& pair = host.pairs[index];
  const auto load = [](const __u64& at) { return static_cast<int64_t>(PairsView::Load(at)); };
  const int64_t heard = load(pair.slot[slot].heard_ns), acked = load(pair.slot[slot].acked_ns);
  int64_t newest = heard;
  for (const cw_slot& other : pair.slot) {
    if (PairsView::Load(other.port) != 0) newest = std::max(newest, load(other.heard_ns));
  }
  DeathScene scene{.behind_ms = static_cast<double>(newest - heard) / 1e6,
                   .reply_age_ms = static_cast<double>(now_ns - load(pair.last_reply_ns)) / 1e6,
                   .prober_still_ms = host.rounds[index].LongestMs(now_ns - kSceneNs, now_ns),
                   .jump_us = PairsView::Load(pair.slot[slot].jump_ns) / 1000};
  if (acked != 0) scene.data_age_ms = static_cast<double>(now_ns - acked) / 1e6;
  for (const std::unique_ptr<Host>& peer : hosts_) {
    for (uint32_t back = 0; back < peer->pairs.size(); ++back) {
      const cw_pair_key& key = peer->pairs[back].key;
      if (std::memcmp(key.local, pair.key.remote, sizeof(key.local)) == 0 &&
          std::memcmp(key.remote, pair.key.local, sizeof(key.remote)) == 0)
        scene.peer_still_ms = peer->rounds[back].LongestMs(now_ns - kSceneNs, now_ns);
    }
  }
  return scene;
}

void KernelDeaths::Look() {
  const std::lock_guard lock(mutex_);
  const int64_t now_ns = MonotonicNs();
  for (const std::unique_ptr<Host>& host : hosts_) {
    host->Look(now_ns, [&](uint32_t index, size_t slot, const SlotDeaths& died) {
      const cw_pair_key& key = host->pairs[index].key;
      seen_.push_back({.at_ns = MonotonicNs(),
                       .host = host->number,
                       .local = Addr::FromBytes(key.local).ToString(),
                       .remote = Addr::FromBytes(key.remote).ToString(),
                       .slot = static_cast<int>(slot),
                       .udp_port = died.port,
                       .times = died.times,
                       .scene = SceneOf(*host, index, slot, MonotonicNs())});
    });
  }
}

absl::StatusOr<KernelCounts> KernelDeaths::Counted() const {
  KernelCounts counts;
  for (const std::unique_ptr<Host>& host : hosts_) {
    const absl::StatusOr<maps::BpfMap> pinned = maps::BpfMap::OpenPinned(host->counters_pin);
    if (!pinned.ok()) return pinned.status();
    if (pinned->id() != host->counters.map().id())
      return absl::FailedPreconditionError(absl::StrCat("the agent of h", host->number, " made its counters anew"));
    const absl::StatusOr<cw_counters> now = host->counters.Sum();
    if (!now.ok()) return now.status();
    counts.died += now->slots_died - host->at_start.slots_died;
    counts.revived += now->slots_revived - host->at_start.slots_revived;
    counts.moves_blind += now->moves_blind - host->at_start.moves_blind;
  }
  return counts;
}

std::vector<KernelDeath> KernelDeaths::Seen() {
  Look();
  const std::lock_guard lock(mutex_);
  return seen_;
}

}  // namespace cw::lab
