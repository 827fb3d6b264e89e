// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/finder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/fleet/main/service_discovery.h"
#include "userspace/fleet/query/finding_message.h"
#include "userspace/fleet/query/host_event.h"
#include "userspace/model/steady.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr absl::Duration kPeriod = absl::Seconds(1), kSoonest = absl::Milliseconds(200);
constexpr int64_t kEventsBackNs = 3'600'000'000'000;
constexpr int64_t kStandsBackNs = 300'000'000'000;  // of a collective that stands; later rings may be gone over it
constexpr absl::Duration kLookForChanges = absl::Milliseconds(50);
constexpr size_t kEventsAtOnce = 10'000, kMostUnkept = 20'000;
constexpr size_t kMostJobs = 64;  // named of one finding
constexpr int64_t kSlasEveryNs = 2'000'000'000;
constexpr int64_t kHeardNs = 15'000'000'000;
constexpr size_t kMostStanding = 32;  // jobs
constexpr int64_t kStandingEveryNs = 2'000'000'000;
constexpr int64_t kJobsEveryNs = 5'000'000'000;  // hosts tell of flows each 10 s

HostEvent EventOf(const StoredEvent& stored) {
  pb::FleetEvent event;
  if (!event.ParseFromString(stored.payload)) event.mutable_event()->set_type(stored.type);
  HostEvent out = HostEventOf(stored.host, stored.run, event);
  out.time_ns = stored.time_ns;
  return out;
}

}  // namespace

Finder::Finder(UplinkService& uplink, Store& store, Alerts& alerts, Drainer& drainer, Muter& muter,
               IncidentTaker& incidents, FleetFile file, const Rules& rules)
    : uplink_(uplink),
      store_(store),
      alerts_(alerts),
      drainer_(drainer),
      muter_(muter),
      incidents_(incidents),
      live_(store, std::move(file)),
      causes_(rules.findings.causes),
      findings_(rules.findings),
      slas_(rules.slas),
      departed_(store),
      thread_([this] { Run(); }) {}

Finder::~Finder() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
    ended_.notify_all();
  }
  thread_.join();
}

void Finder::Run() {
  Resume();
  while (!End(absl::ZeroDuration())) {
    const absl::Time begun = SteadyNow();
    changes_ = uplink_.changes();
    Look();
    Count(SteadyNow() - begun);
    // Half of a core at most, however large the fleet.
    const absl::Duration rest = std::max(kSoonest, SteadyNow() - begun);
    if (End(rest)) return;
    while (SteadyNow() < begun + kPeriod && uplink_.changes() == changes_ &&
           absl::GetCurrentTimeNanos() < findings_.NextNs()) {
      if (End(kLookForChanges)) return;
    }
  }
}

void Finder::Count(absl::Duration took) {
  const std::lock_guard lock(mutex_);
  ++numbers_.evaluations;
  numbers_.evaluation_seconds += absl::ToDoubleSeconds(took);
  numbers_.open = {};
  numbers_.muted = mutes_.muted();
  for (const Finding& f : findings_.Open()) numbers_.open[static_cast<size_t>(f.cause)] += !mutes_.IsMuted(f.id);
}

FinderNumbers Finder::numbers() {
  const std::lock_guard lock(mutex_);
  return numbers_;
}

std::map<std::string, std::string> Finder::racks() {
  const std::lock_guard lock(mutex_);
  return racks_;
}

bool Finder::End(absl::Duration wait) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, absl::ToChronoMilliseconds(wait), [this] { return end_; });
}

// Told once, until another thing is wrong.
void Finder::Complain(const absl::Status& status) {
  const std::string text(status.message());
  if (!status.ok() && text != complaint_) spdlog::error("findings: {}", text);
  complaint_ = text;
}

void Finder::Resume() {
  begun_ns_ = absl::GetCurrentTimeNanos();
  const absl::StatusOr<std::vector<StoredFinding>> open = store_.Findings({.open = true, .limit = Ledger::kMost});
  if (!open.ok()) return Complain(open.status());
  for (const StoredFinding& stored : *open) {
    pb::FleetFinding message;
    if (!message.ParseFromString(stored.body)) continue;
    const absl::StatusOr<Finding> finding = FindingOf(message);
    finding.ok() ? findings_.Resume(*finding, absl::GetCurrentTimeNanos()) : Complain(finding.status());
    if (!finding.ok()) continue;
    mutes_.Resume(*finding, message.muted_by());
    const bool older = finding->start_ns < begun_ns_ - absl::ToInt64Nanoseconds(ActBook::kLately);
    if (older && !finding->did.empty()) did_before_[finding->id] = finding->did;
  }
  std::vector<Finding> told = findings_.Open();
  std::erase_if(told, [this](const Finding& f) { return mutes_.IsMuted(f.id); });
  alerts_.Take(told, /*resumed=*/true);
}

void Finder::LookAtFabric(Picture& picture) {
  if (!live_.LookAtFabric(picture)) return;
  std::map<std::string, std::vector<Addr>> nics;
  for (const HostEvidence& host : picture.hosts) {
    for (const NicFact& nic : host.nics) nics[host.name].push_back(nic.address);
  }
  std::map<std::string, std::string> racks = RacksOf(nics, live_.topology());
  live_.SetRacks(racks);
  const std::lock_guard lock(mutex_);
  racks_ = std::move(racks);
}

// Of collectives that stand: hosts of the job are looked at, too, but for jobs that the host who says so has no part
// in.
void Finder::TellStanding(const std::vector<HostEvent>& stands) {
  if (stands.empty()) return;
  const std::vector<HostWork> work = WorkNow();
  std::map<std::string, std::vector<std::string>> hosts;  // by communicator
  for (const JoinedJob& job : JoinJobs(work)) {
    const absl::flat_hash_set<std::string> reach = ReachOf(job, work).hosts;
    for (const std::string& id : job.ids) hosts[id] = {reach.begin(), reach.end()};
  }
  for (const HostEvent& event : stands) {
    std::vector<std::string> of_job;
    for (const auto& [name, value] : event.evidence) {
      if (const auto known = hosts.find(value); name == "job" && known != hosts.end()) of_job = known->second;
    }
    if (std::find(of_job.begin(), of_job.end(), event.host) == of_job.end()) of_job.clear();
    incidents_.Stands(event, of_job);
  }
}

std::vector<HostEvent> Finder::NewEvents(int64_t now_ns) {
  std::vector<HostEvent> events, stands;
  EventQuery query{.after = events_after_, .limit = kEventsAtOnce};
  // Until there is one of late: the whole history is behind number 0.
  if (!events_begun_ || events_after_ == 0) query.from_ns = now_ns - kEventsBackNs;
  const absl::StatusOr<EventPage> page = store_.Events(query);
  if (!page.ok()) {
    Complain(page.status());
    return events;
  }
  for (const StoredEvent& stored : page->events) {
    if (stored.type == "job" && stored.severity == pb::SEVERITY_ALERT && stored.time_ns > now_ns - kStandsBackNs)
      stands.push_back(EventOf(stored));
    // What a spool brings later than that holds no more.
    if (!ConcernsFindings(stored.type) || stored.time_ns <= now_ns - kEventsBackNs) continue;
    events.push_back(EventOf(stored));
    acts_.Take(events.back());
  }
  acts_.Age(now_ns);
  TellStanding(stands);
  events_after_ = page->next;
  events_begun_ |= page->events.size() < kEventsAtOnce;
  return events;
}

// Those that were removed are not copied: they go.
void Finder::CopyAll() {
  std::set<std::string> there;
  uplink_.EachHost([&](const LiveHost& live) {
    there.insert(live.host);
    live_.Copy(live, absl::Now());
    slas_.Take(live);
  });
  std::vector<std::string> gone;
  for (const auto& [name, host] : live_.hosts()) {
    if (!there.contains(name)) gone.push_back(name);
  }
  for (const std::string& name : gone) {
    slas_.Forget(name);
    findings_.Forget(name);
    live_.Forget(name);
  }
}

// Hosts tell each ten seconds. Behind everything else: what is dead is told first.
void Finder::LookAtSlas(int64_t now_ns) {
  if (slas_.empty() || now_ns - slas_ns_ < kSlasEveryNs) return;
  sla_words_ = slas_.Look(absl::FromUnixNanos(now_ns), racks());
  slas_ns_ = now_ns;
  const std::lock_guard lock(mutex_);
  numbers_.slas = sla_words_;
}

// Jobs none of whose collectives stands for the network, as far as hosts tell. A sentence says how long; it stays as it
// was first said, so that it is no news each time.
void Finder::LookAtStanding(int64_t now_ns) {
  if (now_ns - standing_ns_ < kStandingEveryNs) return;
  standing_ns_ = now_ns;
  std::vector<StandingJob> standing;
  const std::vector<HostWork> work = StandingNow();
  std::set<std::string> ids;
  for (const HostWork& host : work) {
    for (const auto& [c, time_ns] : host.collectives) ids.insert(c->job_id());
  }
  const std::vector<Finding> open = ids.empty() ? std::vector<Finding>() : findings_.Open();
  for (const JoinedJob& job : ids.empty() ? std::vector<JoinedJob>() : JoinJobs(work)) {
    const auto stands = [&](const std::string& id) { return ids.contains(id); };
    if (standing.size() == kMostStanding) break;
    if (std::none_of(job.ids.begin(), job.ids.end(), stands)) continue;
    const std::vector<HeldUpBy> by = WhatHoldsUp(job, work, open, live_.topology());
    const bool process = std::none_of(by.begin(), by.end(), [](const HeldUpBy& b) { return b.host.empty(); });
    if (!process || by.empty()) continue;
    StandingJob& now = standing.emplace_back(StandingJob{.job = job.name, .host = by[0].host, .text = by[0].text});
    for (const StandingJob& before : standing_) {
      if (before.job == now.job && before.host == now.host) now.text = before.text;
    }
  }
  standing_ = std::move(standing);
}

void Finder::Look() {
  drainer_.Tick(SteadyNow());
  CopyAll();
  if (const absl::Status known = departed_.Look(uplink_.removals()); !known.ok()) Complain(known);
  Picture picture{.now_ns = absl::GetCurrentTimeNanos()};
  if (const absl::Status added = live_.AddPaths(picture, departed_.nics()); !added.ok()) Complain(added);
  LookAtFabric(picture);
  picture.events = NewEvents(picture.now_ns);
  picture.slas = sla_words_;
  LookAtStanding(picture.now_ns);
  picture.standing = standing_;
  std::vector<Finding> changed = findings_.Evaluate(picture);
  NameJobs(changed, picture.now_ns);
  Keep(changed);
  LookAtSlas(picture.now_ns);
}

HostWork Finder::RanksOf(const std::string& name, const LivePicture::Host& host) {
  HostWork work{.host = name, .speaks = host.told.connected, .flows = {}, .ranks = {}, .collectives = {}};
  for (const auto& [key, told] : host.work->jobs()) {
    if (host.Holds(told.time_ns, LiveWork::kJobsHold)) work.ranks.push_back({&told.job, told.time_ns});
  }
  return work;
}

std::vector<HostWork> Finder::WorkNow() const {
  std::vector<HostWork> hosts;
  for (const auto& [name, host] : live_.hosts()) {
    if (host.work == nullptr) continue;
    HostWork& work = hosts.emplace_back(RanksOf(name, host));
    // A host that tells of its paths alone has no flows any more.
    const bool sends = host.Holds(host.work->flows().time_ns, LiveWork::kFlowsHold);
    for (const FlowSample& flow : host.work->flows().flows) {
      if (!sends) break;
      work.flows.push_back({&flow, live_.HopsOf(flow.hops)});
    }
  }
  return hosts;
}

// Of hosts that are connected; a collective that stands is told again within seconds. What hosts do besides is not
// looked at: this is asked often.
std::vector<HostWork> Finder::StandingNow() const {
  bool any = false;
  std::vector<HostWork> hosts;
  for (const auto& [name, host] : live_.hosts()) {
    if (host.work == nullptr) continue;
    HostWork& work = hosts.emplace_back(RanksOf(name, host));
    for (const auto& [key, told] : host.work->collectives()) {
      if (!host.told.connected || told.collective.state() != pb::Collective::STATE_STALLED ||
          !host.Holds(told.time_ns, LiveWork::kFlowsHold))
        continue;
      work.collectives.push_back({&told.collective, told.time_ns});
      any = true;
    }
  }
  if (!any) hosts.clear();
  return hosts;
}

// Jobs whose flows cross what is wrong, or did since: once they suffer they may send little. A finding that has new
// ones is news.
void Finder::NameJobs(std::vector<Finding>& changed, int64_t now_ns) {
  if (changed.empty() && now_ns - named_ns_ < kJobsEveryNs) return;
  std::map<uint64_t, Finding> open;
  for (Finding& finding : findings_.Open()) open.emplace(finding.id, std::move(finding));
  if (open.empty() && changed.empty()) return affected_.clear();
  named_ns_ = now_ns;
  const std::vector<HostWork> hosts = WorkNow();
  std::vector<JobReach> jobs;
  for (const JoinedJob& job : JoinJobs(hosts)) jobs.push_back(ReachOf(job, hosts));
  const auto name = [&](Finding& finding) {
    std::set<std::string>& known = affected_[finding.id];
    const size_t before = known.size();
    for (const JobReach& job : jobs) {
      if (known.size() < kMostJobs && Crosses(finding, job, live_.topology())) known.insert(job.name);
    }
    const bool acted = LookAtActs(finding, now_ns);
    AddAffected(finding);
    return acted || known.size() > before;
  };
  std::set<uint64_t> news;
  for (Finding& finding : changed) {
    name(finding);
    news.insert(finding.id);
  }
  for (auto& [id, finding] : open) {
    if (!news.contains(id) && name(finding)) changed.push_back(finding);
  }
  std::erase_if(affected_, [&](const auto& entry) { return !open.contains(entry.first); });
  std::erase_if(did_before_, [&](const auto& entry) { return !open.contains(entry.first); });
}

// The way of a port that no probe takes is not known: then it is those ways to this peer that are dead.
FlowWay Finder::WayOf(const FlowAct& act) const {
  FlowWay way;
  const auto host = live_.hosts().find(act.host), peer = live_.hosts().find(act.peer);
  if (host == live_.hosts().end()) return way;
  const auto to_peer = [&](const Addr& address) {
    if (peer == live_.hosts().end()) return address.ToString() == act.peer;
    const std::vector<NicFact>& nics = peer->second.told.nics;
    return std::any_of(nics.begin(), nics.end(), [&](const NicFact& nic) { return nic.address == address; });
  };
  const auto add = [&](const PathEvidence& path) {
    if (path.hops != nullptr) way.ports.insert(way.ports.end(), path.hops->begin(), path.hops->end());
    way.ports.push_back(path.destination);
    way.nics.insert(way.nics.end(), {path.source, path.destination});
  };
  for (const PathEvidence& path : host->second.paths) {
    if (act.port_before != 0 && path.udp_port == act.port_before && to_peer(path.destination)) add(path);
  }
  if (!way.ports.empty()) return way;
  for (const PathEvidence& path : host->second.paths) {
    if (path.state == PathEvidence::State::kDead && to_peer(path.destination)) add(path);
  }
  return way;
}

// At first hosts have to be heard: without their paths an act is about nothing.
bool Finder::LookAtActs(const Finding& finding, int64_t now_ns) {
  if (now_ns - begun_ns_ < kHeardNs) return false;
  return acts_.Look(finding, live_.topology(), now_ns, [this](const FlowAct& act) { return WayOf(act); });
}

void Finder::AddAffected(Finding& finding) const {
  std::vector<std::string> did = acts_.Did(finding.id);
  if (const auto before = did_before_.find(finding.id); before != did_before_.end()) {
    for (std::string& sentence : did) sentence = "since the service began: " + sentence;
    did.insert(did.begin(), before->second.begin(), before->second.end());
  }
  if (!did.empty()) finding.did = std::move(did);
  const auto known = affected_.find(finding.id);
  if (known == affected_.end()) return;
  std::set<std::string> all(finding.jobs.begin(), finding.jobs.end());
  all.insert(known->second.begin(), known->second.end());
  finding.jobs = {all.begin(), all.end()};
}

void Finder::Keep(const std::vector<Finding>& changed) {
  const int64_t now_ns = absl::GetCurrentTimeNanos();
  const auto muted_by = [&](const Finding& f) {
    const std::string drain = drainer_.MutedBy(f);
    return drain.empty() ? muter_.MutedBy(f) : drain;
  };
  std::vector<Finding> open = findings_.Open();
  for (Finding& f : open) AddAffected(f);
  MuteBook::News news = mutes_.Take(changed, open, muted_by, now_ns);
  alerts_.Take(news.alerts);  // whether or not the store can keep them
  for (const Finding& f : changed) {
    const std::string what = absl::StrCat(CauseName(f.cause), ": ", absl::Utf8SafeCHexEscape(f.scope));
    const std::string why = f.evidence.empty() ? "" : absl::Utf8SafeCHexEscape(f.evidence[0]);
    const char* muted = mutes_.IsMuted(f.id) ? ", muted" : "";
    f.end_ns == 0 ? spdlog::warn("{} ({}{}): {}", what, IdText(f.id), muted, why)
                  : spdlog::info("{} ({}) is over", what, IdText(f.id));
  }
  for (const Finding& f : changed) {
    if (f.end_ns == 0 && !mutes_.IsMuted(f.id)) incidents_.Found(f);
  }
  for (auto& [f, by] : news.keep) {
    if (unkept_.size() < kMostUnkept || unkept_.contains(f.id)) unkept_[f.id] = {f, by};
  }
  if (unkept_.empty()) return;
  std::vector<StoredFinding> rows;
  for (const auto& [id, unkept] : unkept_) {
    const Finding& f = unkept.finding;
    pb::FleetFinding message = MessageOf(f);
    message.set_muted_by(unkept.muted_by);
    message.set_severity(std::string(SeverityName(RuleOf(causes_, f.cause).severity)));
    rows.push_back({id, f.start_ns, f.end_ns, message.SerializeAsString()});
  }
  const absl::Status kept = store_.PutFindings(rows);
  if (kept.ok()) unkept_.clear();
  Complain(kept);
}

}  // namespace cw::fleet
