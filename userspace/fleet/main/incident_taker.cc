// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/incident_taker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/fleet/incidents/gather.h"
#include "userspace/fleet/query/finding_message.h"
#include "userspace/model/addr_bytes.h"
#include "userspace/model/printable.h"
#include "userspace/model/run_id.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

constexpr absl::Duration kLook = absl::Milliseconds(500);
constexpr absl::Duration kMostSpan = absl::Hours(1);
constexpr absl::Duration kComplainEvery = absl::Seconds(10);
// A host has four parts of 128 KiB ahead; small ones count as this much.
constexpr size_t kMostWaitingBytes = 2 << 20, kLeastAnswerBytes = 64 << 10, kMostUnasked = 8;
constexpr size_t kMostWanted = 64, kMostKnown = 20'000, kMostScopes = 1000;
constexpr size_t kMostReasonText = 300;

int64_t NsOf(absl::Duration duration) { return absl::ToInt64Nanoseconds(duration); }

}  // namespace

IncidentTaker::IncidentTaker(IncidentOptions options, std::unique_ptr<Shelf> shelf, UplinkService& uplink, Store& store,
                             Query& query)
    : options_(std::move(options)),
      uplink_(uplink),
      store_(store),
      query_(query),
      shelf_(std::move(shelf)),
      thread_([this] { Run(); }) {}

IncidentTaker::~IncidentTaker() {
  {
    const std::lock_guard lock(inbox_mutex_);
    end_ = true;
    arrived_.notify_all();
  }
  thread_.join();
  for (const auto& collection : taking_) Finish(*collection);
}

void IncidentTaker::Run() {
  while (true) {
    {
      std::unique_lock lock(inbox_mutex_);
      arrived_.wait_for(lock, absl::ToChronoMilliseconds(kLook),
                        [this] { return end_ || !inbox_.empty() || !wanted_.empty(); });
      if (end_) return;
    }
    Work(absl::Now());
  }
}

void IncidentTaker::Work(absl::Time now) {
  std::deque<News> inbox;
  std::deque<Wanted> wanted;
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox.swap(inbox_);
    wanted.swap(wanted_);
    waiting_.clear();
  }
  std::vector<std::unique_ptr<Collection>> done;
  {
    const std::lock_guard lock(mutex_);
    for (const News& news : inbox) Deal(news);
    for (const Wanted& one : wanted) TakeByItself(one, now);
    for (auto at = taking_.begin(); at != taking_.end();) {
      if (!(*at)->Done(now)) {
        ++at;
        continue;
      }
      finishing_.push_back((*at)->Short());
      done.push_back(std::move(*at));
      at = taking_.erase(at);
    }
  }
  for (const auto& collection : done) Finish(*collection);  // it takes its time
}

// A host that is refused again and again fills no log.
void IncidentTaker::Complain(const std::string& host, const std::string& why, absl::Time now) {
  if (now >= complained_ && now - complained_ < kComplainEvery) return;
  complained_ = now;
  spdlog::warn("{}: {}", host, why.empty() ? "it sent of its ring what nobody asked it for" : why);
}

void IncidentTaker::Deal(const News& news) {
  for (const auto& collection : taking_) {
    std::optional<pb::RingAsk> ask;
    const uint64_t refused = collection->refused();
    if (news.state) ask = collection->Look(news.host, *news.state);
    if (news.answer && collection->Concerns(news.answer->id())) ask = collection->Take(news.host, *news.answer);
    refused_ += collection->refused() - refused;
    if (collection->refused() > refused) Complain(news.host, collection->MissingOf(news.host), absl::Now());
    if (ask) uplink_.SendRing(news.host, *ask);
  }
  if (!news.answer) return;
  // One that is over, or never was: the host may stop.
  const bool known = std::any_of(taking_.begin(), taking_.end(),
                                 [&](const auto& collection) { return collection->Concerns(news.answer->id()); });
  if (known) return;
  ++refused_;
  Complain(news.host, "what it sends of its ring nobody asks for any more", absl::Now());
  pb::RingAsk forget;
  forget.set_forget(news.answer->id());
  uplink_.SendRing(news.host, forget);
}

void IncidentTaker::Now(const std::string& host, const State& state) {
  const std::lock_guard lock(inbox_mutex_);
  inbox_.push_back({.host = host, .state = state, .answer = {}});
  arrived_.notify_all();
}

// More than it has credit for is dropped. Of what nobody asked for the number alone is kept, to answer it.
bool IncidentTaker::Take(const std::string& host, const pb::RingAnswer& answer) {
  const std::lock_guard lock(inbox_mutex_);
  const bool asked = requests_.contains(answer.id());
  const size_t bytes = std::max(answer.ByteSizeLong(), kLeastAnswerBytes);
  size_t& waiting = waiting_[{host, asked ? answer.id() : 0}];
  const size_t most = asked ? kMostWaitingBytes : kMostUnasked * kLeastAnswerBytes;
  waiting += asked ? bytes : kLeastAnswerBytes;
  if (waiting > most) {
    ++flooded_;
    return asked;
  }
  News& news = inbox_.emplace_back();
  news.host = host;
  news.answer.emplace();
  news.answer->set_id(answer.id());
  if (asked) news.answer = answer;
  arrived_.notify_all();
  return asked;
}

void IncidentTaker::Want(Wanted wanted) {
  const std::lock_guard lock(inbox_mutex_);
  if (wanted_.size() < kMostWanted) wanted_.push_back(std::move(wanted));
  arrived_.notify_all();
}

void IncidentTaker::Found(const Finding& finding) {
  if (!options_.least || RuleOf(options_.causes, finding.cause).severity < *options_.least) return;
  {
    const std::lock_guard lock(inbox_mutex_);
    if (known_.size() >= kMostKnown) known_.clear();
    if (!known_.insert(finding.id).second) return;
  }
  Wanted wanted{.scope = finding.scope,
                .reason = absl::StrCat(std::string(CauseName(finding.cause)), ": ", finding.scope),
                .host = "",
                .request = {},
                .finding = finding};
  wanted.request.set_finding(IdText(finding.id));
  wanted.request.set_reason(wanted.reason);
  Want(std::move(wanted));
}

void IncidentTaker::Stands(const HostEvent& event, const std::vector<std::string>& hosts) {
  if (!options_.least) return;
  // All hosts of a job say it.
  std::string job;
  for (const auto& [name, value] : event.evidence) {
    if (name == "job") job = CutUtf8(value, kMostReasonText);
  }
  Wanted wanted{.scope = "job " + job,
                .reason = absl::StrCat("a collective of job ", job, " stands, says ", event.host),
                .host = event.host,
                .request = {},
                .finding = {}};
  wanted.request.add_hosts(event.host);
  if (!event.peer.empty()) wanted.request.add_hosts(event.peer);
  for (const std::string& host : hosts) wanted.request.add_hosts(host);
  wanted.request.set_from_ns(event.time_ns - NsOf(options_.before));
  wanted.request.set_to_ns(event.time_ns + NsOf(options_.after));
  wanted.request.set_reason(wanted.reason);
  Want(std::move(wanted));
}

// A service that begins anew hears of findings that go on as if they were new.
bool IncidentTaker::HasOf(const std::string& finding) const {
  const auto is = [&](const pb::Incident& head) { return !finding.empty() && head.finding().id() == finding; };
  const std::vector<pb::Incident> there = shelf_->List();
  return std::any_of(there.begin(), there.end(), is) || std::any_of(finishing_.begin(), finishing_.end(), is) ||
         std::any_of(taking_.begin(), taking_.end(), [&](const auto& taking) { return is(taking->head()); });
}

bool IncidentTaker::UnderWay(const std::string& id) const {
  return std::any_of(finishing_.begin(), finishing_.end(), [&](const pb::Incident& head) { return head.id() == id; }) ||
         std::any_of(taking_.begin(), taking_.end(), [&](const auto& taking) { return taking->head().id() == id; });
}

// One host's word must not use up what findings and people need.
bool IncidentTaker::Allows(const Wanted& wanted, absl::Time now) {
  const auto last = taken_.find(wanted.scope);
  if (last != taken_.end() && now - last->second < kApart) return false;
  size_t at_once = 0, stands = 0, stands_at_once = 0, of_host = 0;
  for (const ByItself& one : by_itself_) {
    const bool under_way = UnderWay(one.id);
    at_once += under_way;
    if (one.host.empty()) continue;
    ++stands;
    stands_at_once += under_way;
    of_host += one.host == wanted.host;
  }
  if (by_itself_.size() >= kMostByItselfInHour || at_once >= kMostByItselfAtOnce) return false;
  return wanted.host.empty() ||
         (stands < kMostStandsInHour && stands_at_once < kMostStandsAtOnce && of_host < kMostStandsOfHost);
}

void IncidentTaker::TakeByItself(const Wanted& wanted, absl::Time now) {
  if (HasOf(wanted.request.finding())) return;
  // A service that begins anew hears of findings of days ago, too: no ring has them any more.
  if (wanted.finding && absl::FromUnixNanos(wanted.finding->start_ns) < now - kRingHolds) return;
  while (!by_itself_.empty() && now - by_itself_.front().at > absl::Hours(1)) by_itself_.pop_front();
  if (!Allows(wanted, now)) {
    ++not_taken_;
    return;
  }
  const absl::StatusOr<pb::Incident> begun = Begin(wanted.request, wanted.finding, now);
  if (!begun.ok()) {
    ++not_taken_;
    spdlog::warn("no incident is taken of {}: {}", wanted.reason, std::string(begun.status().message()));
    return;
  }
  if (taken_.size() >= kMostScopes) taken_.clear();
  taken_[wanted.scope] = now;
  by_itself_.push_back({.at = now, .host = wanted.host, .id = begun->id()});
}

std::vector<IncidentTaker::Known> IncidentTaker::KnownHosts() {
  std::vector<Known> known;
  uplink_.EachHost([&](const LiveHost& live) {
    Known& host = known.emplace_back();
    host.name = live.host;
    host.connected = live.connected;
    host.facts.set_host(live.host);
    host.facts.set_clock_known(live.clock_known);
    host.facts.set_clock_synced(live.clock_synced);
    for (const LiveHost::Nic& nic : live.nics) {
      pb::NicFacts& facts = *host.facts.add_nics();
      facts.set_name(nic.name);
      facts.add_addresses(AddressBytes(nic.address));
    }
  });
  return known;
}

// Those that it is about, the first first, and a few that are well: what they see living exonerates.
absl::Status IncidentTaker::AddHosts(const std::vector<std::string>& affected, pb::Incident& head) {
  const std::set<std::string> wanted(affected.begin(), affected.end());
  std::map<std::string, pb::IncidentHost> chosen;
  std::map<std::string, const Known*> there;
  std::vector<const Known*> others;
  const std::vector<Known> all = KnownHosts();
  for (const Known& host : all) {
    if (wanted.contains(host.name)) {
      there[host.name] = &host;
    } else if (host.connected) {
      others.push_back(&host);
    }
  }
  for (const std::string& name : affected) {
    const auto known = there.find(name);
    if (known == there.end() || chosen.size() >= kMostHosts) continue;
    chosen[name] = known->second->facts;
    chosen[name].set_affected(true);
  }
  if (chosen.empty())
    return absl::NotFoundError(
        "the fleet service has heard of none of these hosts since it began; see cwctl fleet hosts");
  const size_t witnesses = std::min({kMostWitnesses, others.size(), kMostHosts + kMostWitnesses - chosen.size()});
  for (size_t i = 0; i < witnesses; ++i) {  // spread over them, for names of one rack stand together
    const Known& host = *others[i * others.size() / witnesses];
    chosen[host.name] = host.facts;
  }
  for (auto& [name, host] : chosen) *head.add_hosts() = std::move(host);
  return absl::OkStatus();
}

std::optional<Finding> IncidentTaker::StoredFindingOf(const std::string& id) {
  const std::optional<uint64_t> number = ParseId(id);
  if (!number) return std::nullopt;
  const absl::StatusOr<std::vector<StoredFinding>> stored = store_.Findings({.id = *number});
  pb::FleetFinding message;
  if (!stored.ok() || stored->empty() || !message.ParseFromString(stored->front().body)) return std::nullopt;
  absl::StatusOr<Finding> finding = FindingOf(message);
  return finding.ok() ? std::optional<Finding>(*std::move(finding)) : std::nullopt;
}

absl::StatusOr<pb::Incident> IncidentTaker::Plan(const pb::IncidentTakeRequest& request,
                                                 const std::optional<Finding>& finding, absl::Time now) {
  pb::Incident head;
  head.set_id(IdText(NewRun()));
  head.set_reason(Printable(CutUtf8(request.reason(), kMostReasonText)));
  head.set_taken_ns(absl::ToUnixNanos(now));
  head.set_version(options_.version);
  head.set_from_ns(request.from_ns());
  head.set_to_ns(request.to_ns());
  if (finding) {
    *head.mutable_finding() = MessageOf(*finding);
    if (request.from_ns() == 0) head.set_from_ns(finding->start_ns - NsOf(options_.before));
    if (request.to_ns() == 0) head.set_to_ns(finding->start_ns + NsOf(options_.after));
  }
  if (head.from_ns() <= 0 || head.to_ns() <= head.from_ns() || head.to_ns() - head.from_ns() > NsOf(kMostSpan))
    return absl::InvalidArgumentError("an incident is of a span of an hour at most: give --at, and --for");
  if (head.to_ns() > absl::ToUnixNanos(now + kMostSpan))
    return absl::InvalidArgumentError("this span ends more than an hour from now");
  head.set_pivot_ns(head.from_ns() + (head.to_ns() - head.from_ns()) / 2);
  if (finding && finding->start_ns > head.from_ns() && finding->start_ns < head.to_ns())
    head.set_pivot_ns(finding->start_ns);
  std::vector<std::string> affected(request.hosts().begin(), request.hosts().end());
  if (finding) affected.insert(affected.end(), finding->hosts.begin(), finding->hosts.end());
  if (affected.empty()) return absl::InvalidArgumentError("of what? Give --finding ID, or --host, --at and --for");
  if (absl::Status status = AddHosts(affected, head); !status.ok()) return status;
  return head;
}

absl::StatusOr<pb::Incident> IncidentTaker::Begin(const pb::IncidentTakeRequest& request,
                                                  const std::optional<Finding>& finding, absl::Time now) {
  if (taking_.size() + finishing_.size() >= kMostAtOnce)
    return absl::ResourceExhaustedError(absl::StrCat(kMostAtOnce, " incidents are being taken: try again in a while"));
  absl::StatusOr<pb::Incident> head = Plan(request, finding, now);
  if (!head.ok()) return head.status();
  head->set_rules(options_.rules);
  head->set_fabric(options_.fabric);
  absl::StatusOr<std::unique_ptr<Collection>> begun =
      Collection::Begin(*head, shelf_->PathOf(head->id()), options_.limits);
  if (!begun.ok()) return begun.status();
  Collection& collection = **begun;
  {
    const std::lock_guard lock(inbox_mutex_);
    requests_.insert(collection.request());
  }
  for (const bool affected : {true, false}) {  // those that it is about come first
    for (const pb::IncidentHost& host : head->hosts()) {
      if (host.affected() != affected) continue;
      const std::optional<pb::RingAsk> ask = collection.Look(host.host(), uplink_.RingOf(host.host()));
      if (ask) uplink_.SendRing(host.host(), *ask);
    }
  }
  spdlog::info("incident {} is taken of {} hosts: {}", head->id(), head->hosts_size(), head->reason());
  taking_.push_back(*std::move(begun));
  return collection.Short();
}

absl::StatusOr<pb::Incident> IncidentTaker::Take(const pb::IncidentTakeRequest& request, absl::Time now) {
  std::optional<Finding> finding;
  if (!request.finding().empty()) {
    finding = StoredFindingOf(request.finding());
    if (!finding)
      return absl::NotFoundError(absl::StrCat("no finding ", request.finding(), "; see cwctl fleet findings --all"));
  }
  const std::lock_guard lock(mutex_);
  return Begin(request, finding, now);
}

void IncidentTaker::AddFromStore(Collection& collection) {
  const pb::Incident& head = collection.head();
  for (const std::string& host : collection.WithoutRing()) {
    const auto seconds = SecondsFromStore(store_, host, head.from_ns(), head.to_ns());
    const absl::Status added = seconds.ok() ? collection.AddSeconds(host, *seconds) : seconds.status();
    if (!added.ok() && !absl::IsNotFound(added)) collection.Lacks(host, std::string(added.message()));
  }
}

// Nobody else has the collection any more, so no lock is held while the store is read and the file written.
void IncidentTaker::Finish(Collection& collection) {
  {
    const std::lock_guard lock(inbox_mutex_);
    requests_.erase(collection.request());
  }
  // Who did not come to its end keeps its copy no longer.
  for (const std::string& host : collection.Waiting()) uplink_.SendRing(host, collection.Forget());
  pb::Incident& head = collection.head();
  AddFromStore(collection);
  const auto events = EventsOfSpan(store_, head.from_ns(), head.to_ns());
  if (events.ok()) collection.AddEvents(*events).IgnoreError();  // a full disk shows when it is finished
  if (const auto now = head.has_finding() ? StoredFindingOf(head.finding().id()) : std::nullopt)
    *head.mutable_finding() = MessageOf(*now);
  pb::FleetTopologyRequest topology;
  topology.set_at_ns(std::min(head.pivot_ns(), absl::GetCurrentTimeNanos()));
  if (auto reply = query_.Topology(topology); reply.ok()) *head.mutable_topology() = *std::move(reply);
  const absl::StatusOr<pb::Incident> done = collection.Finish();
  const std::lock_guard lock(mutex_);
  std::erase_if(finishing_, [&](const pb::Incident& other) { return other.id() == head.id(); });
  if (!done.ok()) {
    spdlog::error("incident {} is lost: {}", head.id(), std::string(done.status().message()));
    return;
  }
  shelf_->Put(*done);
  const auto missing = std::count_if(done->hosts().begin(), done->hosts().end(),
                                     [](const pb::IncidentHost& host) { return !host.missing().empty(); });
  spdlog::info("incident {} is there, {} of {} hosts not in full", done->id(), missing, done->hosts_size());
}

pb::IncidentListReply IncidentTaker::List() {
  pb::IncidentListReply reply;
  const std::lock_guard lock(mutex_);
  for (auto at = taking_.rbegin(); at != taking_.rend(); ++at) *reply.add_incidents() = (*at)->Short();
  for (const pb::Incident& head : finishing_) *reply.add_incidents() = head;
  for (pb::Incident& head : shelf_->List()) *reply.add_incidents() = std::move(head);
  reply.set_removed(shelf_->removed());
  reply.set_not_taken(not_taken_);
  reply.set_refused(refused_);
  const std::lock_guard inbox(inbox_mutex_);
  reply.set_refused(reply.refused() + flooded_);
  return reply;
}

absl::StatusOr<std::string> IncidentTaker::Find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  for (const auto& collection : taking_) {
    if (collection->head().id() == id)
      return absl::FailedPreconditionError(absl::StrFormat(
          "incident %s is being taken until %s", id,
          absl::FormatTime("%H:%M:%S UTC", absl::FromUnixNanos(collection->head().to_ns()), absl::UTCTimeZone())));
  }
  if (UnderWay(id))
    return absl::FailedPreconditionError(absl::StrCat("incident ", id, " is being written: try again in a minute"));
  return shelf_->Find(id);
}

}  // namespace cw::fleet
