// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/ingest/ingest.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/fleet/ingest/host_name.h"
#include "userspace/fleet/store/work_blob.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

namespace wire = cwfabric::v1;
constexpr uint64_t kForgetEvery = 16;  // batches
constexpr int64_t kForgetNs = 300'000'000'000;
constexpr size_t kRunsOfHost = 2, kMostNameBytes = 64, kMostReasonBytes = 300;
constexpr double kPauseWhenFullS = 2, kPauseWhenFailedS = 5;

wire::Ack AckOf(uint64_t run, uint64_t through) {
  wire::Ack ack;
  ack.set_run(run);
  ack.set_through_sequence(through);
  return ack;
}

void Refuse(wire::Ack& ack, uint64_t sequence, const std::string& reason) {
  wire::Refusal* refusal = ack.add_refusals();
  refusal->set_sequence(sequence);
  refusal->set_reason(reason);
}

void LearnDocument(LiveHost& live, const Document& document) {
  wire::ClockState clock;
  if (document.kind == "clock" && clock.ParseFromString(document.bytes)) {
    live.clock_known = true;
    live.clock_synced = clock.synced();
    live.clock_bound_ns = clock.bound_ns();
  }
  wire::Inventory inventory;
  if (document.kind != "inventory" || !inventory.ParseFromString(document.bytes)) return;
  live.nics.clear();
  for (const wire::NicFacts& nic : inventory.nics()) {
    LiveHost::Nic fact{.name = CutUtf8(nic.name(), kMostNameBytes),
                       .rail = CutUtf8(nic.rail(), kMostNameBytes),
                       .mtu = nic.mtu(),
                       .rate_bps = nic.rate_bps(),
                       .trouble = CutUtf8(nic.trouble(), kMostReasonBytes)};
    for (const wire::RdmaNic& rdma : nic.rdma()) {
      for (const wire::RdmaNicPort& port : rdma.ports()) {
        if (port.netdev() == nic.name()) fact.roce_mtu = port.active_mtu();
      }
    }
    for (const std::string& bytes : nic.addresses()) {
      const std::optional<Addr> address = AddressOf(bytes);
      if (!address || live.nics.size() >= LiveHost::kMostNics) continue;
      fact.address = *address;
      live.nics.push_back(fact);
    }
  }
}

// Of the records that its agent came too late for, or of the time in which it was late.
double LateShareOf(const wire::Batch& batch) {
  const wire::ProbeRecords& records = batch.probe_records();
  const double seen = static_cast<double>(records.lost()) + static_cast<double>(records.read());
  const double interval_ms = static_cast<double>(batch.to_ns() - batch.from_ns()) / 1e6;
  const double lost = seen == 0 ? 0 : static_cast<double>(records.lost()) / seen;
  const double late = interval_ms <= 0 ? 0 : static_cast<double>(records.late_ms()) / interval_ms;
  return std::clamp(std::max(lost, late), 0.0, 1.0);
}

}  // namespace

Ingest::Ingest(Store& store, std::string instance, const IngestLimits& limits)
    : store_(store), instance_(std::move(instance)), limits_(limits) {
  const absl::StatusOr<std::vector<HostSeen>> kept = store_.Hosts();
  if (kept.ok()) LearnFacts(*kept);  // a store that fails is asked again
}

// What hosts said meanwhile is newer.
void Ingest::LearnFacts(const std::vector<HostSeen>& kept) {
  for (const HostSeen& seen : kept) facts_.try_emplace(seen.host, seen.facts);
  facts_known_ = true;
}

void Ingest::KeepFacts(HostFacts facts) {
  const auto [known, fresh] = facts_.try_emplace(facts.host);
  if (!fresh && known->second == facts) return;
  untold_.insert(facts.host);
  known->second = std::move(facts);
}

// An agent's run is its own. One that comes back after another had begun lives, as that one does.
void Ingest::LookForTwins(Host& host, uint64_t run, const std::string& from, absl::Time now) {
  std::vector<Host::Speaks>& all = host.speakers;
  const auto known = std::find_if(all.begin(), all.end(), [&](const Host::Speaks& s) { return s.run == run; });
  if (known != all.end() && known + 1 != all.end()) {
    const std::string &other = all.back().from, unknown = "an address that is not known";
    host.live.twins = absl::StrFormat(
        "two agents speak as %s, from %s and from %s: its word counts for no drain. Give one of them a name and a "
        "certificate of its own, or end it",
        host.live.host, other.empty() ? unknown : other, from.empty() ? unknown : from);
    host.live.twins_seen = now;
  }
  if (known != all.end()) all.erase(known);
  all.push_back({run, from});
  if (all.size() > 4) all.erase(all.begin());
}

absl::StatusOr<wire::Welcome> Ingest::Connect(const wire::Hello& hello, const Speaker& who, absl::Time now) {
  if (absl::Status status = MaySpeakFor(who.names, hello.host()); !status.ok()) return status;
  if (hello.run() == 0) return absl::InvalidArgumentError("Hello without a run: update the agent");
  auto it = hosts_.find(hello.host());
  if (it == hosts_.end()) {
    if (hosts_.size() >= limits_.hosts) {
      return absl::ResourceExhaustedError(absl::StrCat("this instance has ", hosts_.size(), " hosts: add another one"));
    }
    it = hosts_.emplace(hello.host(), Host{.live = {}, .quota = Quota(limits_.quota), .runs = {}}).first;
  }
  Host& host = it->second;
  const absl::StatusOr<Run*> run = RunOf(hello.host(), host, hello.run(), now);
  if (!run.ok()) return run.status();
  host.live.host = hello.host();
  host.live.version = CutUtf8(hello.version(), kMostNameBytes);
  host.live.boot_id = CutUtf8(hello.boot_id(), kMostNameBytes);
  if (host.live.run != hello.run()) {
    host.live.paths.clear();
    host.live.work = nullptr;
    host.live.told = false;
  }
  if (host.live.run != hello.run()) host.live.run_began = now;
  host.live.run = hello.run();
  LookForTwins(host, hello.run(), who.from, now);
  host.live.connected = true;
  host.live.takes_drains = hello.takes_drains();
  host.live.last_seen = now;
  const absl::StatusOr<std::string> metrics = CheckMetricsAddress(hello.metrics_address(), who);
  host.live.metrics = metrics.value_or("");
  host.live.metrics_fault = std::string(metrics.status().message());
  KeepFacts({.host = hello.host(), .metrics = host.live.metrics});
  wire::Welcome welcome;
  welcome.set_instance(instance_);
  // Not what is queued: it may still be lost, and what is acknowledged leaves the spool.
  const absl::StatusOr<uint64_t> through = store_.Through(hello.host(), hello.run());
  if (!through.ok()) return through.status();
  welcome.set_acknowledged_sequence(*through);
  welcome.set_takes_work(true);
  welcome.set_send_definitions((*run)->names.paths.empty());
  return welcome;
}

void Ingest::Disconnect(const std::string& host, uint64_t run) {
  const auto it = hosts_.find(host);
  if (it != hosts_.end() && it->second.live.run == run) it->second.live.connected = false;
}

absl::StatusOr<HostFacts> Ingest::MayRemove(const std::string& host, bool force, absl::Time now) const {
  const auto live = hosts_.find(host);
  const auto facts = facts_.find(host);
  if (live == hosts_.end() && (facts == facts_.end() || facts->second.removed_ns != 0))
    return absl::NotFoundError(absl::StrCat("the fleet service knows no host ", host, "; see cwctl fleet hosts"));
  if (live != hosts_.end() && live->second.live.connected && !force) {
    return absl::FailedPreconditionError(
        absl::StrCat(host, " is connected: stop its agent first, or it comes back; --force removes it nevertheless"));
  }
  return HostFacts{.host = host, .removed_ns = absl::ToUnixNanos(now)};
}

absl::Status Ingest::Remove(const HostFacts& gone, bool force) {
  const auto live = hosts_.find(gone.host);
  if (live != hosts_.end() && live->second.live.connected && !force) {
    untold_.insert(gone.host);  // the store has to learn that it is there
    return absl::FailedPreconditionError(absl::StrCat(gone.host, " connected just now"));
  }
  facts_[gone.host] = gone;
  untold_.insert(gone.host);  // what was being told meanwhile may have come behind it
  if (live != hosts_.end()) hosts_.erase(live);
  return absl::OkStatus();
}

absl::StatusOr<Ingest::Run*> Ingest::RunOf(const std::string& name, Host& host, uint64_t run, absl::Time now) {
  const auto longest_unused = [](const auto& a, const auto& b) { return a.second.used < b.second.used; };
  if (!host.runs.contains(run) && host.runs.size() >= kRunsOfHost) {
    host.runs.erase(std::min_element(host.runs.begin(), host.runs.end(), longest_unused));
  }
  Run& known = host.runs[run];
  known.used = now;
  if (!known.last.has_value()) {
    const absl::StatusOr<uint64_t> through = store_.Through(name, run);
    if (!through.ok()) return through.status();
    known.last = *through;
  }
  return &known;
}

wire::Ack Ingest::Again(const std::string& host, uint64_t run, double pause_s) {
  wire::Ack ack = AckOf(run, store_.Through(host, run).value_or(0));
  ack.set_pause_s(pause_s);
  ack.set_again(true);
  return ack;
}

// Whose it is, whether it is new, and whether there is room: all but what is in it.
std::optional<wire::Ack> Ingest::WhyNot(const std::string& name, Host& host, const wire::Batch& batch, absl::Time now) {
  host.live.last_seen = now;
  if (const absl::Status named = CheckName(batch, name); !named.ok()) {
    ++host.live.refused;
    host.live.last_refusal = std::string(named.message());
    wire::Ack ack = AckOf(batch.run(), 0);
    Refuse(ack, batch.sequence(), std::string(named.message()));
    return ack;
  }
  const absl::StatusOr<Run*> run = RunOf(name, host, batch.run(), now);
  if (!run.ok()) return Again(name, batch.run(), kPauseWhenFailedS);
  const uint64_t last = *(*run)->last;
  if (batch.sequence() <= last) return AckOf(batch.run(), store_.Through(name, batch.run()).value_or(0));
  const uint64_t before = batch.has_after_sequence() ? batch.after_sequence() : batch.sequence() - 1;
  if (before > last) return Again(name, batch.run(), 0);
  if (queue_.size() >= limits_.queued_batches || queued_bytes_ >= limits_.queued_bytes)
    return Again(name, batch.run(), kPauseWhenFullS);
  return std::nullopt;
}

std::optional<wire::Ack> Ingest::Admit(const std::string& name, const wire::Batch& batch, absl::Time now) {
  const auto it = hosts_.find(name);
  if (it == hosts_.end()) return Again(name, batch.run(), kPauseWhenFailedS);  // it never said Hello
  if (std::optional<wire::Ack> why = WhyNot(name, it->second, batch, now)) return why;
  const absl::Duration wait = it->second.quota.Take(batch.ByteSizeLong(), now);
  if (wait > absl::ZeroDuration()) return Again(name, batch.run(), absl::ToDoubleSeconds(wait));
  return std::nullopt;
}

std::optional<wire::Ack> Ingest::Enqueue(const std::string& name, const wire::Batch& batch, absl::Time now,
                                         uint64_t admitted) {
  const auto it = hosts_.find(name);
  if (it == hosts_.end()) return Again(name, batch.run(), kPauseWhenFailedS);
  Host& host = it->second;
  if (std::optional<wire::Ack> why = WhyNot(name, host, batch, now)) return why;
  const uint64_t bytes = batch.ByteSizeLong();
  if (admitted > 0) {
    host.quota.Charge(bytes - std::min(bytes, admitted));
  } else if (const absl::Duration wait = host.quota.Take(bytes, now); wait > absl::ZeroDuration()) {
    return Again(name, batch.run(), absl::ToDoubleSeconds(wait));
  }
  Run& run = host.runs.at(batch.run());
  const uint64_t last = *run.last;
  const absl::Status good = CheckBatch(batch, absl::ToUnixNanos(now), limits_.batch);

  Queued queued{.skip_from = batch.sequence() > last + 1 ? last + 1 : 0};
  if (good.ok()) {
    Translated translated = Translate(batch, absl::ToUnixNanos(now), limits_.batch, run.names);
    queued.records_left_out = translated.records_left_out;
    queued.batch = std::move(translated.batch);
    queued.left_out = std::move(translated.left_out);
    queued.undefined = translated.undefined;
    if (batch.paths_size() > 0) host.live.late_share = LateShareOf(batch);
    // A few bytes name a flow whose words were told before.
    queued.bytes = queued.batch.work.empty() ? 0 : MemoryOf(queued.batch.work);
    host.quota.Charge(queued.bytes);
  } else {
    // Refused for good: nothing of it is kept, but its number is, so that what follows can be acknowledged.
    queued.refused = true;
    queued.batch = {.host = name, .run = batch.run(), .sequence = batch.sequence()};
    queued.left_out = {std::string(good.message())};
    host.live.refused_at = now;
  }
  if (!queued.left_out.empty()) host.live.last_refusal = CutUtf8(queued.left_out.back(), kMostReasonBytes);
  queued.dropped_detail = batch.dropped().detail_batches();
  queued.dropped_events = batch.dropped().event_batches();
  run.last = batch.sequence();
  queued_bytes_ += queued.bytes;
  queue_.push_back(std::move(queued));
  return std::nullopt;
}

bool Ingest::TakesReport(const std::string& name, uint64_t bytes, absl::Time now) {
  const auto it = hosts_.find(name);
  if (it == hosts_.end()) return false;
  if (it->second.quota.Take(bytes, now) == absl::ZeroDuration()) return true;
  ++it->second.live.refused_reports;
  return false;
}

Ingest::Taken Ingest::Take() {
  Taken taken{.batches = std::exchange(queue_, {}), .wants_kept = !facts_known_};
  queued_bytes_ = 0;
  for (const std::string& name : untold_) taken.facts.push_back(facts_.at(name));
  untold_.clear();
  return taken;
}

absl::Status Ingest::Put(Taken& taken) {
  if (taken.wants_kept) {
    absl::StatusOr<std::vector<HostSeen>> kept = store_.Hosts();
    if (kept.ok()) taken.kept = *std::move(kept);
  }
  taken.facts_stored = taken.facts.empty() || store_.PutHosts(taken.facts).ok();
  if (taken.batches.empty()) return absl::OkStatus();
  std::vector<HostBatch> batches;
  batches.reserve(taken.batches.size());
  for (const Queued& q : taken.batches) batches.push_back(q.batch);
  if (absl::Status status = store_.Append(batches).status(); !status.ok()) return status;
  for (const Queued& q : taken.batches) {
    if (q.skip_from == 0) continue;
    absl::Status status = store_.Skip(q.batch.host, q.batch.run, q.skip_from, q.batch.sequence - 1);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// What came meanwhile would be kept as if nothing were missing before it.
void Ingest::Forget(const std::vector<Queued>& taken) {
  std::set<std::pair<std::string, uint64_t>> runs;
  for (const Queued& q : taken) {
    runs.emplace(q.batch.host, q.batch.run);
    const auto host = hosts_.find(q.batch.host);
    if (host == hosts_.end()) continue;
    const auto run = host->second.runs.find(q.batch.run);
    if (run != host->second.runs.end()) run->second.last.reset();
  }
  std::erase_if(queue_, [&](const Queued& q) { return runs.contains({q.batch.host, q.batch.run}); });
  queued_bytes_ = 0;
  for (const Queued& q : queue_) queued_bytes_ += q.bytes;
}

// What has changed since then, as by a removal, is told anew.
void Ingest::SettleFacts(const Taken& taken) {
  if (taken.kept) LearnFacts(*taken.kept);
  for (const HostFacts& told : taken.facts) {
    const auto now = facts_.find(told.host);
    if (now != facts_.end() && (!taken.facts_stored || now->second != told)) untold_.insert(told.host);
  }
}

Ingest::Acks Ingest::Settle(const Taken& taken, bool stored, absl::Time now) {
  SettleFacts(taken);
  if (!stored) Forget(taken.batches);
  std::map<std::pair<std::string, uint64_t>, wire::Ack> by_run;
  for (const Queued& q : taken.batches) {
    const auto known = hosts_.find(q.batch.host);
    if (known == hosts_.end()) continue;  // it was removed meanwhile
    Host& host = known->second;
    wire::Ack& ack = by_run[{q.batch.host, q.batch.run}];
    if (!stored) {
      ack = Again(q.batch.host, q.batch.run, kPauseWhenFailedS);
      continue;
    }
    ack.set_run(q.batch.run);
    ack.set_through_sequence(std::max(ack.through_sequence(), q.batch.sequence));
    if (q.undefined) ack.set_send_definitions(true);
    for (const std::string& reason : q.left_out) Refuse(ack, q.batch.sequence, reason);
    host.live.refused += q.refused;
    host.live.records_left_out += q.records_left_out;
    host.live.dropped_detail += q.dropped_detail;
    host.live.dropped_events += q.dropped_events;
    Learn(host.live, q.batch);
    host.live.told = host.live.told || (q.batch.run == host.live.run && !q.undefined);
    host.live.last_seen = std::max(host.live.last_seen, now);
  }
  Acks acks;
  for (auto& [run, ack] : by_run) acks.emplace_back(run.first, std::move(ack));
  return acks;
}

Ingest::Acks Ingest::Flush(absl::Time now) {
  Taken taken = Take();
  const bool stored = Put(taken).ok();
  return Settle(taken, stored, now);
}

void Ingest::Learn(LiveHost& live, const HostBatch& batch) {
  const auto is_bad = [](PathState state) { return state == PathState::kDead || state == PathState::kSilent; };
  ++live.batches;
  if (batch.run != live.run) return;  // of the agent before: history, not the present
  for (const PathSample& sample : batch.paths) {
    // A host that renames its paths for ever fills nothing.
    if (live.paths.size() >= limits_.batch.paths && !live.paths.contains(sample.key)) continue;
    PathSample& known = live.paths[sample.key];
    if (sample.time_ns >= known.time_ns) {
      changes_ += !sample.key.reverse && is_bad(sample.state) != is_bad(known.state);
      known = sample;
    }
    live.newest_ns = std::max(live.newest_ns, sample.time_ns);
  }
  // Each batch has all paths: what was not among them for so long, the agent has no more.
  if (live.batches % kForgetEvery == 0)
    std::erase_if(live.paths, [&](const auto& path) { return path.second.time_ns < live.newest_ns - kForgetNs; });
  changes_ += std::any_of(batch.events.begin(), batch.events.end(), [](const StoredEvent& e) {
    return e.type == "nic" || e.type == "cause" || e.type == "clock" || e.type == "link";
  });
  for (const Document& document : batch.documents) LearnDocument(live, document);
  if (batch.work.empty()) return;
  // Those who look at it hold what they have.
  auto work = live.work == nullptr ? std::make_shared<LiveWork>() : std::make_shared<LiveWork>(*live.work);
  work->Add(batch.work);
  work->Forget(batch.work.time_ns);
  live.work = std::move(work);
}

const LiveHost* Ingest::Find(const std::string& host) const {
  const auto it = hosts_.find(host);
  return it == hosts_.end() ? nullptr : &it->second.live;
}

std::vector<const LiveHost*> Ingest::Hosts() const {
  std::vector<const LiveHost*> hosts;
  hosts.reserve(hosts_.size());
  for (const auto& [name, host] : hosts_) hosts.push_back(&host.live);
  return hosts;
}

}  // namespace cw::fleet
