// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/emulator.h"

#include <algorithm>
#include <map>
#include <random>

#include "absl/time/clock.h"

namespace cw::lab {
namespace {

std::vector<std::string> SocketPaths(const EmulatorConfig& config) {
  std::vector<std::string> paths;
  for (const HostSpec& host : config.hosts) paths.push_back(host.agent_socket);
  return paths;
}

// PSNs repeat and packets are retransmitted; a delay counts only where each end saw the PSN once.
std::vector<OneWayDelay> MatchStamps(const std::vector<KernelStamp>& sent, const std::vector<KernelStamp>& received) {
  struct Seen {
    int sent = 0;
    int received = 0;
    OneWayDelay delay;
  };
  std::map<uint32_t, Seen> by_psn;
  for (const KernelStamp& s : sent) {
    Seen& seen = by_psn[s.psn];
    ++seen.sent;
    seen.delay.psn = s.psn;
    seen.delay.sent_realtime_ns = s.realtime_ns;
  }
  for (const KernelStamp& s : received) {
    Seen& seen = by_psn[s.psn];
    ++seen.received;
    seen.delay.received_realtime_ns = s.realtime_ns;
  }
  std::vector<OneWayDelay> delays;
  for (const auto& [psn, seen] : by_psn) {
    if (seen.sent == 1 && seen.received == 1) delays.push_back(seen.delay);
  }
  return delays;
}

}  // namespace

Emulator::Emulator(const EmulatorConfig& config)
    : config_(config), origin_ns_(MonotonicNs()), announcer_(SocketPaths(config)) {
  std::mt19937_64 random(config.seed);
  for (size_t i = 0; i < config.hosts.size(); ++i) {
    next_qpn_.push_back(0x40 + static_cast<uint32_t>(random() % 0x3fff00));
  }
}

Emulator::~Emulator() { Stop(); }

absl::StatusOr<std::unique_ptr<Emulator>> Emulator::Create(const EmulatorConfig& config) {
  if (config.hosts.size() < 2 || config.workers < 1) {
    return absl::InvalidArgumentError("the emulator needs at least two hosts and one worker");
  }
  std::unique_ptr<Emulator> emulator(new Emulator(config));
  if (absl::Status s = emulator->Open(); !s.ok()) return s;
  return emulator;
}

absl::Status Emulator::Open() {
  const WorkerConfig worker{absl::ToInt64Nanoseconds(config_.tick), config_.realtime};
  for (int i = 0; i < config_.workers; ++i) workers_.push_back(std::make_unique<Worker>(worker));
  for (size_t i = 0; i < config_.hosts.size(); ++i) {
    const HostSpec& host = config_.hosts[i];
    auto port = HostPort::Open(host, config_.verify_every, config_.stamp_every);
    if (!port.ok()) return port.status();
    const int id = static_cast<int>(i);
    if (absl::Status s = WorkerOf(id).AddPort(id, *std::move(port), host.line_bps); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Emulator::AddJob(const JobSpec& spec) {
  if (absl::Status s = CheckJob(spec, static_cast<int>(config_.hosts.size())); !s.ok()) return s;
  const std::vector<JobPair> flows = FlowsOf(spec);
  absl::MutexLock lock(&mutex_);
  const int id = static_cast<int>(jobs_.size());
  auto job = std::make_unique<JobState>();
  job->spec = spec;
  job->flows = static_cast<int>(flows.size());
  job->in_round = job->flows;
  job->unfinished = job->flows;
  job->start_ns = running_ ? MonotonicNs() + absl::ToInt64Nanoseconds(spec.start_after) : INT64_MAX;
  jobs_.push_back(std::move(job));
  for (const JobPair& pair : flows) AddFlow(id, pair);
  return id;
}

void Emulator::AddFlow(int job, const JobPair& pair) {
  JobState& state = *jobs_[static_cast<size_t>(job)];
  // A READ is asked for by the host that the payload goes to.
  const bool read = state.spec.operation == Operation::kRead;
  const int requester = read ? pair.destination : pair.source;
  const int responder = read ? pair.source : pair.destination;
  const int id = static_cast<int>(flows_.size());
  const uint32_t requester_qpn = next_qpn_[static_cast<size_t>(requester)]++ & kQpnMask;
  const uint32_t responder_qpn = next_qpn_[static_cast<size_t>(responder)]++ & kQpnMask;
  auto make = [&](int host, int peer, uint32_t qpn, uint32_t peer_qpn, bool posts) {
    EndpointSpec e;
    e.flow = id;
    e.host = host;
    e.posts = posts;
    e.receives = posts == read;
    e.address = WorkerOf(host).port(host).address();
    e.remote_address = WorkerOf(peer).port(peer).address();
    e.source_port = UdpSourcePort(qpn, peer_qpn);
    if (config_.choose_port && posts != read) e.source_port = config_.choose_port(host, peer, e.source_port);
    e.qp = QpConfigOf(state.spec);
    e.qp.qpn = qpn;
    e.qp.remote_qpn = peer_qpn;
    e.origin_ns = origin_ns_;
    e.bin_ns = absl::ToInt64Nanoseconds(config_.bin);
    e.max_bins = static_cast<size_t>(config_.longest_run / config_.bin);
    e.arrivals = config_.arrivals;
    auto endpoint = std::make_unique<Endpoint>(e, &state);
    Announce(*endpoint, state.spec.name);
    return endpoint;
  };
  auto answering = make(responder, requester, responder_qpn, requester_qpn, false);
  auto asking = make(requester, responder, requester_qpn, responder_qpn, true);
  flows_.push_back({job, pair, asking.get(), answering.get()});
  WorkerOf(responder).AddEndpoint(std::move(answering));
  WorkerOf(requester).AddEndpoint(std::move(asking));
}

void Emulator::Announce(const Endpoint& endpoint, const std::string& label) {
  const EndpointSpec& e = endpoint.spec();
  QpAnnouncement qp;
  qp.lqpn = e.qp.qpn;
  qp.rqpn = e.qp.remote_qpn;
  qp.local_address = e.address;
  qp.remote_address = e.remote_address;
  qp.ip6 = WorkerOf(e.host).port(e.host).ip6();
  qp.source_port = e.source_port;
  qp.path_mtu = static_cast<uint16_t>(e.qp.path_mtu);
  qp.label = label;
  announcer_.Add(e.host, qp);
}

absl::Status Emulator::Start() {
  absl::MutexLock lock(&mutex_);
  if (running_) return absl::FailedPreconditionError("the emulator runs already");
  running_ = true;
  announcer_.Start();
  const int64_t now = MonotonicNs();
  for (auto& job : jobs_) {
    if (job->start_ns == INT64_MAX) job->start_ns = now + absl::ToInt64Nanoseconds(job->spec.start_after);
  }
  for (auto& worker : workers_) {
    if (absl::Status s = worker->Start(); !s.ok()) return s;
  }
  return absl::OkStatus();
}

bool Emulator::WaitDone(absl::Duration limit) const {
  const absl::Time deadline = absl::Now() + limit;
  auto done = [this] {
    absl::MutexLock lock(&mutex_);
    return std::all_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job->unfinished == 0; });
  };
  while (!done()) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

void Emulator::Stop() {
  for (auto& worker : workers_) worker->Stop();
  announcer_.Stop();
  absl::MutexLock lock(&mutex_);
  running_ = false;
}

FlowReport Emulator::ReportOf(int id, const Flow& flow, int64_t now_ns) const {
  FlowReport r;
  r.id = id;
  r.job = flow.job;
  r.source = flow.hosts.source;
  r.destination = flow.hosts.destination;
  std::vector<KernelStamp> sent, received;
  // One worker's lock at a time: the two ends are read a moment apart.
  WorkerOf(flow.requester->spec().host).WithLock([&] {
    const Endpoint& e = *flow.requester;
    r.finished = e.finished();
    r.dead = e.qp().dead();
    r.waiting_since_ns = e.qp().waiting_since_ns();
    r.requester = e.qp().counters();
    r.send = e.send();
  });
  WorkerOf(flow.responder->spec().host).WithLock([&] { r.responder = flow.responder->qp().counters(); });
  const Endpoint* sender = flow.Sender();
  WorkerOf(sender->spec().host).WithLock([&] {
    r.source_qpn = sender->spec().qp.qpn;
    r.source_port = sender->spec().source_port;
    r.rate_bps = const_cast<Endpoint*>(sender)->RateBps(now_ns);
    sent = sender->stamps(true);
  });
  const Endpoint* receiver = flow.Receiver();
  WorkerOf(receiver->spec().host).WithLock([&] {
    r.destination_qpn = receiver->spec().qp.qpn;
    r.receive = receiver->receive();
    received = receiver->stamps(false);
  });
  r.delays = MatchStamps(sent, received);
  return r;
}

Snapshot Emulator::TakeSnapshot() const {
  absl::MutexLock lock(&mutex_);
  Snapshot s;
  s.taken_ns = MonotonicNs();
  s.origin_ns = origin_ns_;
  s.bin_ns = absl::ToInt64Nanoseconds(config_.bin);
  for (const auto& job : jobs_) {
    const bool finished = job->unfinished == 0;
    s.jobs.push_back({job->spec.name, job->start_ns, finished, finished ? job->spec.rounds : job->round.load()});
  }
  for (size_t i = 0; i < flows_.size(); ++i) s.flows.push_back(ReportOf(static_cast<int>(i), flows_[i], s.taken_ns));
  for (size_t i = 0; i < config_.hosts.size(); ++i) {
    const int host = static_cast<int>(i);
    Worker& worker = WorkerOf(host);
    s.ports.push_back(worker.WithLock([&] { return worker.port(host).counters(); }));
  }
  return s;
}

ArrivalRing::After Emulator::FirstDeliveryAfter(int flow, int64_t monotonic_ns) const {
  absl::MutexLock lock(&mutex_);
  const Endpoint* receiver = flows_.at(static_cast<size_t>(flow)).Receiver();
  return WorkerOf(receiver->spec().host).WithLock([&] { return receiver->arrivals().FirstAfter(monotonic_ns); });
}

}  // namespace cw::lab
