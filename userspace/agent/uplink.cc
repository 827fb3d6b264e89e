// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/uplink.h"

#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/deadlines.h"
#include "userspace/agent/fleet_drains.h"
#include "userspace/agent/ring_keeper.h"
#include "userspace/agent/uplink_work.h"
#include "userspace/api/audit.h"
#include "userspace/config/change.h"
#include "userspace/model/boot_id.h"
#include "userspace/model/kernel_time.h"
#include "userspace/model/run_id.h"
#include "userspace/model/steady.h"
#include "userspace/uplink/batch_builder.h"
#include "userspace/uplink/client.h"

namespace cw::agent {
namespace {

namespace wire = ::cwfabric::v1;
using uplink::Kind;

constexpr absl::Duration kDetailPeriod = absl::Seconds(10), kDetailSoonest = absl::Seconds(1);
constexpr absl::Duration kGather = absl::Milliseconds(100);  // paths over one fault die one after the other
constexpr absl::Duration kEventWait = absl::Milliseconds(200);
constexpr size_t kPathsAtOnce = 3000;  // some 300 KiB with their names
constexpr absl::Duration kRetry = absl::Seconds(5);
constexpr absl::Duration kUnsyncedBound = absl::Seconds(16);  // the kernel's own limit of maxerror

// Of the kernel's clock, by its own word (adjtimex(2)).
uint64_t ClockBoundNs() {
  return KernelTimeBoundNs().value_or(static_cast<uint64_t>(absl::ToInt64Nanoseconds(kUnsyncedBound)));
}

std::string BytesOf(const std::string& text) {
  const absl::StatusOr<Addr> addr = Addr::Parse(text);
  if (!addr.ok()) return "";
  const char* bytes = reinterpret_cast<const char*>(addr->bytes.data());
  return addr->is_v4() ? std::string(bytes + 12, 4) : std::string(bytes, 16);
}

std::string DrainsFile(const config::Config& config) { return config.RunDir() + "/" + FleetDrains::kFile; }

// What failed before in the same words is no news.
class FailedActs {
 public:
  bool IsNews(const std::string& act, const absl::Status& result) {
    if (said_.size() >= kMost) said_.clear();
    const std::string words(result.message());
    const auto [place, fresh] = said_.try_emplace(act, words);
    return std::exchange(place->second, words) != words || fresh || result.ok();
  }

 private:
  static constexpr size_t kMost = 4096;  // more than an order of each kind has targets
  std::map<std::string, std::string> said_;
};

// What the service orders does not come through the API's doors, so it is kept here who ordered it: what is done, and
// what fails, once. What crosses nothing here is tried again for as long as it is ordered, and changes nothing.
FleetDrains::Asks AsksOf(const config::Config& config, Agent& agent) {
  const auto keep = [&agent, file = acts::ActsFile(config.ActsFile()), failed = std::make_shared<FailedActs>()](
                        const api::Caller& who, const char* call, const auto& request, auto result) {
    if (absl::IsNotFound(result.status()) || !failed->IsNews(absl::StrCat(call, " ", request.what()), result.status()))
      return result;
    const acts::Act act = api::ActOf(who, call, request.ShortDebugString(), result.status());
    if (const std::string fault = file.Append(act, absl::GetCurrentTimeNanos()); !fault.empty())
      agent.Tell({.type = "api", .alert = true, .text = "who changes what is not kept: " + fault, .evidence = {}});
    return result;
  };
  return {.drain = [&agent, keep](const api::Caller& who,
                                  const wire::DrainRequest& r) { return keep(who, "Drain", r, agent.Drain(r, who)); },
          .undrain = [&agent, keep](
                         const api::Caller& who,
                         const wire::UndrainRequest& r) { return keep(who, "Undrain", r, agent.Undrain(r, who)); },
          .drains = [&agent] { return agent.Drains(); }};
}

UplinkWork::Asks WorkOf(Agent& agent) {
  return {.flows = [&agent] { return agent.FlowsSeen(); },
          .jobs = [&agent] { return agent.ListJobs({}); },
          .collectives =
              [&agent] {
                wire::ListCollectivesRequest request;
                request.set_slow(true);
                request.set_done_within_s(absl::ToDoubleSeconds(UplinkWork::kDetailPeriod));  // older ones are told
                return agent.ListCollectives(request);
              }};
}

}  // namespace

struct Uplink::Impl {
  Impl(const config::Config& given, Agent& of)
      : config(given),
        agent(of),
        run(NewRun()),
        builder(agent.host_name(), run),
        work(WorkOf(agent)),
        drains(DrainsFile(config), BootId(), TakesDrains(), AsksOf(config, agent)) {}

  const config::Config config;
  Agent& agent;
  const uint64_t run;
  std::mutex mutex;  // of builder and what `work` tells
  uplink::BatchBuilder builder;
  UplinkWork work;
  FleetDrains drains;
  std::unique_ptr<RingKeeper> ring;  // null: none, and why
  std::string no_ring = "fleet.ring_mib of its configuration is 0";
  std::unique_ptr<uplink::Client> client;
  std::atomic<bool> stop{false};
  std::mutex telling;  // what the client has to say is an event before the end, or none
  std::thread thread;

  uint64_t after_seq = 0;  // events up to here are in the spool
  bool spool_failed = false;
  uint64_t silence_changes = 0;
  Agent::ProbeRecords counted;  // as of the last detail
  bool path_changed = false;    // since the last detail …
  absl::Time changed_at;        // … for the first time (SteadyNow)
  int64_t last_ns = absl::GetCurrentTimeNanos();

  bool TakesDrains() const {
    return std::find(config.fleet.allow.begin(), config.fleet.allow.end(), "drain") != config.fleet.allow.end();
  }
  void StepDrains();
  void StartRing(uint64_t told);
  void WireRing(uplink::ClientOptions& options);
  wire::Hello Hello() const;
  wire::ClockState Clock();
  wire::Inventory Inventory();
  void Tell(const std::string& text, bool alert);
  void Collect();
  void PathChanged() {
    if (!path_changed) changed_at = SteadyNow();
    path_changed = true;
  }
  bool TakeEvents(absl::Duration wait);
  void TakeDetail();
  void TakeWork();
  bool Keep(const wire::Batch& batch, Kind kind);
};

wire::Hello Uplink::Impl::Hello() const {
  wire::Hello hello;
  hello.set_host(agent.host_name());
  hello.set_version(kVersion);
  hello.set_run(run);
  hello.set_boot_id(BootId());
  for (const std::string& what : config.fleet.allow) hello.add_capabilities(what);
  hello.set_metrics_address(config.MetricsAddress());
  hello.set_takes_drains(TakesDrains());
  hello.set_keeps_ring(ring != nullptr);
  if (ring == nullptr) hello.set_no_ring(no_ring);
  hello.set_config_hash(std::strtoull(config::Fingerprint(config).c_str(), nullptr, 16));
  return hello;
}

// Coarsely: it is told when it changes.
wire::ClockState Uplink::Impl::Clock() {
  wire::ClockState out;
  const absl::StatusOr<wire::ClockReply> reply = agent.Clock();
  if (!reply.ok()) return out;
  out.set_synced(reply->tracking().state() == wire::ClockTracking::STATE_SYNCHRONISED);
  if (!out.synced()) return out;
  const auto rounded = [](double ns) { return ns <= 0 ? 0 : std::exp2(std::ceil(std::log2(ns))); };
  out.set_bound_ns(rounded(reply->tracking().bound_ns()));
  out.set_error_est_ns(rounded(reply->tracking().error_est_ns()));
  return out;
}

wire::Inventory Uplink::Impl::Inventory() {
  wire::Inventory out;
  utsname names{};
  if (uname(&names) == 0) out.set_kernel(names.release);
  const absl::StatusOr<wire::StatusReply> status = agent.Status();
  if (!status.ok()) return out;
  for (const wire::NicStatus& nic : status->nics()) {
    wire::NicFacts* facts = out.add_nics();
    facts->set_name(nic.name());
    facts->add_addresses(BytesOf(nic.address()));
    facts->set_mtu(nic.mtu());
    facts->set_trouble(nic.trouble());
  }
  return out;
}

void Uplink::Impl::Tell(const std::string& text, bool alert) {
  const std::lock_guard lock(telling);
  if (stop.load()) return;  // nobody would take it into the spool any more
  agent.Tell({.type = "fleet", .alert = alert, .text = text, .evidence = {}});
}

// What is not taken is told once; events are read again from the log, detail is gone.
bool Uplink::Impl::Keep(const wire::Batch& batch, Kind kind) {
  const absl::Status status = client->Append(batch, kind);
  if (status.ok() == !spool_failed) return status.ok();
  spool_failed = !status.ok();
  Tell(status.ok() ? "what there is to tell the fleet service is kept again"
                   : "what there is to tell the fleet service cannot be kept: " + std::string(status.message()),
       !status.ok());
  return status.ok();
}

// False: the spool did not take them.
bool Uplink::Impl::TakeEvents(absl::Duration wait) {
  wire::EventsRequest request;
  request.set_after_seq(after_seq);
  const absl::StatusOr<std::vector<wire::Event>> events = agent.Events(request, wait);
  if (!events.ok() || events->empty()) return true;
  const int64_t now_ns = absl::GetCurrentTimeNanos();
  const auto [first, last] = std::minmax_element(
      events->begin(), events->end(), [](const auto& a, const auto& b) { return a.time_unix_ns() < b.time_unix_ns(); });
  std::vector<wire::Batch> batches;
  {
    const std::lock_guard lock(mutex);
    batches = builder.Events(*events, {.from_ns = std::min(first->time_unix_ns(), now_ns),
                                       .to_ns = std::max(last->time_unix_ns(), now_ns),
                                       .bound_ns = ClockBoundNs()});
  }
  // It died, came back, or takes other switches.
  const auto of_path = [](const wire::Event& e) { return e.type() == "path" || e.type() == "fabric"; };
  if (std::any_of(events->begin(), events->end(), of_path)) PathChanged();
  for (const wire::Batch& batch : batches) {
    if (!Keep(batch, Kind::kEvent)) return false;
    after_seq = batch.events(batch.events_size() - 1).event().seq();
  }
  return true;
}

void Uplink::Impl::TakeDetail() {
  path_changed = false;
  const absl::Duration since = absl::Nanoseconds(absl::GetCurrentTimeNanos() - last_ns);
  const auto seconds = static_cast<int>(absl::ToInt64Seconds(absl::Ceil(since, absl::Seconds(1))));
  const absl::StatusOr<std::vector<uplink::PathSeen>> paths =
      agent.PathsSeen(std::clamp(seconds, 1, static_cast<int>(absl::ToInt64Seconds(kDetailPeriod))));
  if (!paths.ok()) return;  // the agent ends
  const wire::Inventory inventory = Inventory();
  const wire::ClockState clock = Clock();
  const int64_t now_ns = absl::GetCurrentTimeNanos();
  const uplink::Interval interval{.from_ns = last_ns, .to_ns = now_ns, .bound_ns = ClockBoundNs()};
  last_ns = now_ns;
  const Agent::ProbeRecords records = agent.probe_records();
  const Agent::ProbeRecords before = std::exchange(counted, records);
  const absl::Span<const uplink::PathSeen> all(*paths);
  for (size_t at = 0; at == 0 || at < all.size(); at += kPathsAtOnce) {
    wire::Batch batch;
    {
      const std::lock_guard lock(mutex);
      batch = builder.Detail(all.subspan(at, kPathsAtOnce), inventory, clock, interval);
      if (at == 0 && (records.lost > before.lost || records.late_ns > before.late_ns)) {
        batch.mutable_probe_records()->set_late_ms(
            static_cast<uint64_t>((records.late_ns - before.late_ns) / 1'000'000));
        batch.mutable_probe_records()->set_lost(records.lost - before.lost);
        batch.mutable_probe_records()->set_read(records.read - before.read);
      }
    }
    if (Keep(batch, Kind::kDetail) || !batch.has_definitions()) continue;
    // A batch with definitions that is not kept would leave paths without a name.
    const std::lock_guard lock(mutex);
    builder.DefineAgain();
  }
}

void Uplink::Impl::TakeWork() {
  const std::optional<UplinkWork::Seen> seen = work.Look(absl::Now(), ClockBoundNs());
  if (!seen) return;
  std::optional<wire::Batch> batch;
  {
    const std::lock_guard lock(mutex);
    batch = work.Tell(*seen, builder);
  }
  if (!batch || Keep(*batch, Kind::kDetail) || !batch->has_definitions()) return;
  const std::lock_guard lock(mutex);
  work.DefineAgain();
}

void Uplink::Impl::StepDrains() {
  std::optional<wire::DrainReport> report = drains.Step(SteadyNow());
  if (report.has_value()) client->Report(*std::move(report));
}

// The uplink goes on without one.
void Uplink::Impl::StartRing(uint64_t told) {
  if (config.fleet.ring_mib == 0) return;
  absl::StatusOr<std::unique_ptr<RingKeeper>> started =
      RingKeeper::Start(config, agent, run, told,
                        {.bound_ns = ClockBoundNs,
                         .tell = [this](const std::string& text) { Tell(text, true); },
                         .wake = [this] { client->Wake(); }});
  if (started.ok()) {
    ring = *std::move(started);
    return;
  }
  no_ring = std::string(started.status().message());
  Tell("there is no ring file: " + no_ring, true);
}

void Uplink::Impl::WireRing(uplink::ClientOptions& options) {
  if (ring == nullptr) return;
  options.ring = {.begin = [this] { ring->Begin(); },
                  .ask = [this](const wire::RingAsk& ask) { ring->Take(ask); },
                  .next = [this] { return ring->Next(); }};
}

void Uplink::Impl::Collect() {
  absl::Time detail_at = SteadyNow() + absl::Seconds(1);  // hosts of a fleet start at different moments
  absl::Time events_at = absl::InfinitePast(), taken_at = absl::InfinitePast();
  while (!stop.load()) {
    if (SteadyNow() < events_at) {
      absl::SleepFor(kEventWait);
    } else if (!TakeEvents(path_changed ? kGather : kEventWait)) {
      events_at = SteadyNow() + kRetry;
    }
    if (const uint64_t changes = agent.silence_changes(); std::exchange(silence_changes, changes) != changes)
      PathChanged();
    StepDrains();
    TakeWork();
    // What changed of a path is told soon: the fleet's findings wait for it.
    const bool soon = path_changed && SteadyNow() >= std::max(taken_at + kDetailSoonest, changed_at + kGather);
    if (SteadyNow() < detail_at && !soon) continue;
    TakeDetail();
    taken_at = SteadyNow();
    detail_at = soon ? taken_at + kDetailPeriod : std::max(detail_at + kDetailPeriod, taken_at);
  }
  TakeEvents(absl::ZeroDuration());
}

Uplink::Uplink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<Uplink>> Uplink::Start(const config::Config& config, Agent& agent, uint64_t told) {
  const uplink::SpoolLimits limits{.bytes = static_cast<uint64_t>(config.fleet.spool_mib) << 20,
                                   .clock_is_right = [] { return KernelTimeBoundNs().has_value(); }};
  absl::StatusOr<std::unique_ptr<uplink::Spool>> spool = uplink::Spool::Open(config.SpoolDir(), limits, absl::Now());
  if (!spool.ok()) return spool.status();
  auto impl = std::make_unique<Impl>(config, agent);
  impl->after_seq = told;
  Impl* const inner = impl.get();
  uplink::ClientOptions options{.host = agent.host_name(),
                                .run = impl->run,
                                .endpoints = config.fleet.endpoints,
                                .tls = {.cert = config.FleetCert(), .key = config.FleetKey(), .ca = config.FleetCa()},
                                .hello = [inner] { return inner->Hello(); },
                                .define_again =
                                    [inner] {
                                      const std::lock_guard lock(inner->mutex);
                                      inner->builder.DefineAgain();
                                      inner->work.DefineAgain();
                                      wire::Definitions all = inner->builder.Known();
                                      inner->work.AddKnown(all);
                                      return all;
                                    },
                                .drains = [inner](const wire::DrainOrders& orders) { inner->drains.Take(orders); },
                                .tell = [inner](const std::string& text, bool alert) { inner->Tell(text, alert); }};
  impl->StartRing(told);
  impl->WireRing(options);
  impl->client = uplink::Client::Start(std::move(options), *std::move(spool));
  impl->thread = std::thread([inner] { inner->Collect(); });
  return std::unique_ptr<Uplink>(new Uplink(std::move(impl)));
}

uint64_t Uplink::End() {
  {
    const std::lock_guard lock(impl_->telling);
    impl_->stop.store(true);
  }
  if (impl_->thread.joinable()) impl_->thread.join();
  if (impl_->ring != nullptr) impl_->ring->Stop();  // it wakes the client, which asks it
  impl_->client.reset();
  return impl_->after_seq;
}

Uplink::~Uplink() { End(); }

void GiveBackFleetDrains(const config::Config& config, Agent& agent) {
  FleetDrains(DrainsFile(config), BootId(), /*allowed=*/false, AsksOf(config, agent)).Step(SteadyNow());
}

}  // namespace cw::agent
