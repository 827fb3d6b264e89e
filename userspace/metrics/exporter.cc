// SPDX-License-Identifier: Apache-2.0
#include "userspace/metrics/exporter.h"

#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "spdlog/spdlog.h"
#include "userspace/http/server.h"
#include "userspace/metrics/families.h"
#include "userspace/metrics/snapshot.h"
#include "userspace/metrics/worst.h"

namespace cw::metrics {
namespace {

constexpr absl::Duration kLook = absl::Seconds(1);
constexpr int64_t kFreshNs = 250'000'000;

int64_t Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

struct Exporter::Impl {
  Impl(ExporterOptions given, api::AgentView& agent, PathTotalsFn path_totals)
      : options(std::move(given)), view(agent), totals(std::move(path_totals)) {}

  // The watching thread.
  void Watch();
  void LookAtLinks();
  void ReadEvents();  // both threads
  void OpenServer();  // before this thread, too
  // The server's thread.
  absl::StatusOr<std::string> Page();
  absl::StatusOr<Snapshot> Take();
  absl::Status AddChosen(Snapshot& snapshot);

  const ExporterOptions options;
  api::AgentView& view;
  const PathTotalsFn totals;
  EventTally tally;
  std::mutex reading_events;
  std::mutex mutex;
  LinkFlaps flaps;  // under mutex
  SelfCost self;    // the server's thread, as what follows
  std::string page;
  int64_t page_ns = 0;
  std::mutex stop_mutex;
  std::condition_variable stopped;
  bool stop = false;                     // under stop_mutex
  std::unique_ptr<http::Server> server;  // null: the address could not be had yet
  bool refused = false;                  // and that was said
  std::thread watcher;
};

void Exporter::Impl::LookAtLinks() {
  const std::lock_guard lock(mutex);
  for (const std::string& nic : options.nics) {
    const absl::StatusOr<LinkReading> reading = options.read_link(nic);
    if (reading.ok()) flaps.Observe(Now(CLOCK_MONOTONIC), nic, *reading);
  }
  if (options.run_dir.empty()) return;
  const absl::Status saved = flaps.Save(absl::StrCat(options.run_dir, "/", LinkFlaps::kFile), options.boot);
  if (!saved.ok()) spdlog::debug("{}", std::string(saved.message()));
}

void Exporter::Impl::ReadEvents() {
  const std::lock_guard lock(reading_events);
  api::v1::EventsRequest request;
  request.set_after_seq(tally.last_seq());
  if (absl::StatusOr<std::vector<api::v1::Event>> events = view.Events(request, absl::ZeroDuration()); events.ok())
    tally.Add(*events);
}

// The agent keeps some 16000 events, so that one look a second misses none.
void Exporter::Impl::Watch() {
  std::unique_lock lock(stop_mutex);
  while (!stopped.wait_for(lock, absl::ToChronoSeconds(kLook), [this] { return stop; })) {
    LookAtLinks();
    ReadEvents();
    if (server == nullptr) OpenServer();
  }
}

absl::Status Exporter::Impl::AddChosen(Snapshot& snapshot) {
  if (options.worst_paths > 0) {
    absl::StatusOr<v1::PathsReply> paths = view.Paths({});
    if (!paths.ok()) return paths.status();
    snapshot.worst_paths = WorstPaths(*paths, options.worst_paths);
  }
  if (options.top_flows > 0) {
    absl::StatusOr<v1::QpsReply> qps = view.Qps({});
    if (!qps.ok()) return qps.status();
    snapshot.top_flows = TopFlows(*qps, options.top_flows);
  }
  return absl::OkStatus();
}

absl::StatusOr<Snapshot> Exporter::Impl::Take() {
  Snapshot out;
  absl::StatusOr<v1::StatusReply> status = view.Status();
  if (!status.ok()) return status.status();
  absl::StatusOr<v1::CountersReply> counters = view.Counters();
  if (!counters.ok()) return counters.status();
  absl::StatusOr<PathTotals> paths = totals();
  if (!paths.ok()) return paths.status();
  out.status = *std::move(status);
  out.counters = *std::move(counters);
  out.paths = *std::move(paths);
  if (absl::StatusOr<v1::ClockReply> clock = view.Clock(); clock.ok()) out.clock = *std::move(clock);
  if (absl::StatusOr<v1::ListJobsReply> jobs = view.ListJobs({}); jobs.ok())
    out.communicators = static_cast<uint32_t>(jobs->jobs_size());
  if (absl::Status chosen = AddChosen(out); !chosen.ok()) return chosen;
  out.rdma = ReadHwCounters(options.sys_root);
  ReadEvents();
  out.events = tally.Counts();
  LookAtLinks();
  const std::lock_guard lock(mutex);
  out.links = flaps.States(Now(CLOCK_MONOTONIC));
  return out;
}

absl::StatusOr<std::string> Exporter::Impl::Page() {
  if (page_ns != 0 && Now(CLOCK_MONOTONIC) - page_ns < kFreshNs) return page;
  const int64_t before_ns = Now(CLOCK_THREAD_CPUTIME_ID);
  // The page tells of the readings before it.
  const auto account = absl::MakeCleanup([&] {
    self.server_cpu_s += static_cast<double>(Now(CLOCK_THREAD_CPUTIME_ID) - before_ns) / 1e9;
    ++self.scrapes;
  });
  absl::StatusOr<Snapshot> snapshot = Take();
  if (!snapshot.ok()) return snapshot.status();
  self.loop_cpu_s = snapshot->paths.loop_cpu_s;
  snapshot->self = self;
  page = Exposition(Families(*snapshot));
  page_ns = Now(CLOCK_MONOTONIC);
  return page;
}

void Exporter::Impl::OpenServer() {
  absl::StatusOr<std::unique_ptr<http::Server>> opened =
      http::Server::Start(options.listen, {{"/metrics", http::kMetricsType, [this] { return Page(); }}});
  if (opened.ok()) {
    if (refused) spdlog::info("metrics are served now");
    server = *std::move(opened);
    return;
  }
  if (!refused) spdlog::warn("no metrics yet: {}", std::string(opened.status().message()));
  refused = true;
}

std::unique_ptr<Exporter> Exporter::Start(ExporterOptions options, api::AgentView& view, PathTotalsFn totals) {
  auto impl = std::make_unique<Impl>(std::move(options), view, std::move(totals));
  if (!impl->options.run_dir.empty())
    (void)impl->flaps.Load(absl::StrCat(impl->options.run_dir, "/", LinkFlaps::kFile), impl->options.boot);
  impl->LookAtLinks();
  impl->OpenServer();
  impl->watcher = std::thread([raw = impl.get()] { raw->Watch(); });
  return std::unique_ptr<Exporter>(new Exporter(std::move(impl)));
}

Exporter::Exporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Exporter::~Exporter() {
  {
    const std::lock_guard lock(impl_->stop_mutex);
    impl_->stop = true;
  }
  impl_->stopped.notify_all();
  impl_->watcher.join();
  impl_->server.reset();
}

}  // namespace cw::metrics
