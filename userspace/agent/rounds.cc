// SPDX-License-Identifier: Apache-2.0
// The order of the agent's work: what follows what in each kind of round. A part that has work there has a line here;
// where it stands is a matter of what it reads, and the tests Rounds.* hold it.
#include "absl/time/clock.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/balance/moves.h"
#include "userspace/agent/balance/window.h"
#include "userspace/agent/control_record.h"
#include "userspace/agent/events_file.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/draining.h"
#include "userspace/agent/flows/flow_ends.h"
#include "userspace/agent/flows/flow_reader.h"
#include "userspace/agent/flows/flow_samples.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/flows/steering.h"
#include "userspace/agent/greeting.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/chunks.h"
#include "userspace/agent/insight/gaps.h"
#include "userspace/agent/label_book.h"
#include "userspace/agent/lease.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/nics/addresses.h"
#include "userspace/agent/nics/blind_notes.h"
#include "userspace/agent/nics/carriers.h"
#include "userspace/agent/nics/hooks.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/paths/losses.h"
#include "userspace/agent/paths/path_news.h"
#include "userspace/agent/paths/probe_news.h"
#include "userspace/agent/paths/size_check.h"
#include "userspace/agent/peer_watch.h"
#include "userspace/agent/recovery/returns.h"
#include "userspace/agent/scopes.h"
#include "userspace/commandline/sd_notify.h"

namespace cw::agent {
namespace {

constexpr int64_t kLateNs = 500'000'000;

// Of the programs, as far as the kernel counts it.
int64_t RunTimeNs(const dataplane::Dataplane& dataplane) {
  int64_t ns = 0;
  for (const auto& info : {dataplane.XdpInfo(), dataplane.TcInfo()}) {
    if (info.ok()) ns += static_cast<int64_t>(info->run_time_ns);
  }
  return ns;
}

}  // namespace

struct Agent::Step {
  const char* name;
  void (*run)(Agent& agent, int64_t now_ns);

  static absl::Span<const Step> OfRings();
  static absl::Span<const Step> OfMail();
  static absl::Span<const Step> OfWindow();
  static absl::Span<const Step> OfSecond();
};

absl::Span<const Agent::Step> Agent::Step::OfRings() {
  static constexpr Step kSteps[] = {
      {"probes", [](Agent& a, int64_t) { a.ReadProbes(); }},
      {"lossy paths", [](Agent& a, int64_t) { a.losses_->Judge(); }},
      {"clocks", [](Agent& a, int64_t) { a.clocks_->Update(); }},  // which may be a round of fleet time
  };
  return kSteps;
}

absl::Span<const Agent::Step> Agent::Step::OfMail() {
  static constexpr Step kSteps[] = {
      {"messages",
       [](Agent& a, int64_t now_ns) {
         for (auto& [index, pair] : a.pairs_) {
           a.samples_->Send(*pair);
           a.chunks_->Send(*pair);
           a.clocks_->SendTrips(*pair, now_ns);
         }
       }},
      {"greeting", [](Agent& a, int64_t now_ns) { a.greeting_->Send(now_ns); }},
      {"sizes", [](Agent& a, int64_t now_ns) { a.sizes_->Step(now_ns); }},
      {"samples", [](Agent& a, int64_t) { a.samples_->Match(); }},
  };
  return kSteps;
}

// Flows are read first; what is decided goes by what was observed before, and moves for balance come last.
absl::Span<const Agent::Step> Agent::Step::OfWindow() {
  static constexpr Step kSteps[] = {
      {"last looks", [](Agent& a, int64_t) { a.balance_->Settle(INT64_MAX); }},
      {"flows", [](Agent& a, int64_t) { a.flow_reader_->ReadSent(a.window_->began_ns()); }},
      {"scopes", [](Agent& a, int64_t now_ns) { a.scopes_->Step(now_ns); }},
      {"stalls", [](Agent& a, int64_t now_ns) { a.losses_->JudgeStalls(now_ns); }},
      {"silence",
       [](Agent& a, int64_t now_ns) {
         // Windows are 100 ms apart at most where it keeps to its share of a processor.
         const int64_t passed_ns = now_ns - std::exchange(a.window_ns_, now_ns);
         if (passed_ns < now_ns && passed_ns > kLateNs) a.late_ns_.fetch_add(passed_ns, std::memory_order_relaxed);
         bool changed = false;
         for (auto& [index, pair] : a.pairs_)
           changed |= a.probe_news_->LookForSilence(*pair, a.engine_->IntervalNs(index), now_ns) |
                      a.path_news_->LookAtSilentPair(*pair);
         if (changed) a.silence_changes_.fetch_add(1, std::memory_order_relaxed);
       }},
      {"silent peers", [](Agent& a, int64_t now_ns) { a.peer_watch_->Look(now_ns); }},
      {"unwatched ports",
       [](Agent& a, int64_t) {
         if (a.modes_->Acts(Capability::kFailover)) a.kernel_mover_->LeaveUnwatchedPorts();
       }},
      {"mute ports",
       [](Agent& a, int64_t) {
         if (a.modes_->Acts(Capability::kFailover)) a.kernel_mover_->LeaveMutePorts();
       }},
      {"pace", [](Agent& a, int64_t now_ns) { a.pace_.Look(a.flows_, now_ns); }},
      {"drains", [](Agent& a, int64_t) { a.draining_->Look(); }},
      {"returns", [](Agent& a, int64_t now_ns) { a.returns_->Step(now_ns); }},
      {"breaker", [](Agent& a, int64_t now_ns) { a.breaker_->Step(now_ns); }},
      {"observe", [](Agent& a, int64_t now_ns) { a.window_->Observe(now_ns); }},
      {"causes",
       [](Agent& a, int64_t) {
         a.causes_->Look(a.window_->seen());
         a.causes_->Hold(a.window_->seen());
       }},
      {"balance", [](Agent& a, int64_t) { a.window_->Decide(); }},
  };
  return kSteps;
}

absl::Span<const Agent::Step> Agent::Step::OfSecond() {
  static constexpr Step kSteps[] = {
      {"watchdog", [](Agent&, int64_t) { commandline::SdNotify("WATCHDOG=1"); }},
      {"lease", [](Agent& a, int64_t) { a.lease_->Renew(a.options_.config.steering.lease); }},
      {"mode", [](Agent& a, int64_t) { a.modes_->LookAtMap(); }},
      {"session",
       [](Agent& a, int64_t) {
         a.control_->RenewSession(a.pairs_, absl::GetCurrentTimeNanos(),
                                  [&a](uint32_t session) { return a.engine_->SetSession(session); });
       }},
      {"pairs",
       [](Agent& a, int64_t now_ns) {
         for (auto& [index, pair] : a.pairs_) {
           a.link_flaps_->Remember(*pair);
           a.damping_->Update(*pair);
           a.probe_news_->CountSent(*pair, now_ns);
         }
       }},
      {"met wishes", [](Agent& a, int64_t) { a.kernel_mover_->DropMetWishes(); }},
      {"link flaps", [](Agent& a, int64_t) { a.link_flaps_->Keep(); }},
      {"carriers", [](Agent& a, int64_t) { a.carriers_->LookAtAll(); }},
      {"addresses", [](Agent& a, int64_t) { a.addresses_->LookAtAll(); }},
      {"hooks", [](Agent& a, int64_t) { a.hooks_->LookAtAll(); }},
      {"blind NICs", [](Agent& a, int64_t) { a.blind_notes_->Send(); }},
      {"MTUs", [](Agent& a, int64_t now_ns) { a.sizes_->LookAtMtus(now_ns); }},
      {"deadlines", [](Agent& a, int64_t) { a.steering_->EndDue(); }},
      {"scopes", [](Agent& a, int64_t) { a.scopes_->EndDue(); }},
      {"dry run", [](Agent& a, int64_t) { a.dry_run_->ExpireDeaths(); }},
      {"causes", [](Agent& a, int64_t now_ns) { a.causes_->Judge(now_ns, a.samples_->lost()); }},
      {"gaps", [](Agent& a, int64_t now_ns) { a.gaps_->Judge(now_ns, a.modes_->ActsAtAll()); }},
      {"due drains", [](Agent& a, int64_t) { a.draining_->EndDue(); }},
      {"owners' moves", [](Agent& a, int64_t) { a.owner_mover_->Step(); }},
      {"owners' drains", [](Agent& a, int64_t) { a.draining_->LookAtUnseen(); }},
      {"others' traffic", [](Agent& a, int64_t) { a.draining_->LookAtOthers(); }},
      {"owners' returns", [](Agent& a, int64_t now_ns) { a.owner_returns_->Step(now_ns); }},
      {"received flows", [](Agent& a, int64_t) { a.flow_reader_->ReadReceived(); }},
      {"unseen queue pairs", [](Agent& a, int64_t) { a.unseen_->Follow(); }},
      {"labels", [](Agent& a, int64_t) { a.labels_->Refresh(); }},
      {"clock's pairs", [](Agent& a, int64_t) { a.clocks_->ChoosePairs(); }},
      {"idle flows", [](Agent& a, int64_t) { a.flow_ends_->ForgetIdle(); }},
      {"flow table", [](Agent& a, int64_t) { a.flow_ends_->ReopenTable(); }},
      {"events file", [](Agent& a, int64_t) { a.events_file_->Look(); }},
      {"meters",
       [](Agent& a, int64_t now_ns) {
         a.vitals_.Read(now_ns, a.engine_->prober_stats(), RunTimeNs(*a.dataplane_));
         a.vitals_.slowed = a.pace_.slowed();
         a.clocks_->Slow(a.vitals_.slowed);
         a.lease_->SawProber(absl::Nanoseconds(a.vitals_.prober.lateness_max_ns),
                             absl::Nanoseconds(a.vitals_.prober.longest_interval_ns));
       }},
  };
  return kSteps;
}

absl::Span<const Agent::Step> Agent::StepsOf(Round round) {
  switch (round) {
    case Round::kRings:
      return Step::OfRings();
    case Round::kMail:
      return Step::OfMail();
    case Round::kWindow:
      return Step::OfWindow();
    case Round::kSecond:
      break;
  }
  return Step::OfSecond();
}

void Agent::Run(Round round) {
  const int64_t now_ns = MonotonicNs();
  for (const Step& step : StepsOf(round)) step.run(*this, now_ns);
}

std::vector<std::string> Agent::OrderOf(Round round) {
  std::vector<std::string> names;
  for (const Step& step : StepsOf(round)) names.emplace_back(step.name);
  return names;
}

}  // namespace cw::agent
