// SPDX-License-Identifier: Apache-2.0
// Answers: what is known of communicators and collectives, as the API has it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/profile/profiles.h"

namespace cw::profile {
namespace {

constexpr int64_t kWindowNs = 10'000'000'000;
constexpr uint32_t kDefaultLast = 100, kMostLast = 1000;
constexpr int kMostChunkQps = 64;
constexpr char kNoQps[] =
    "no queue pair events: NCCL was built without NET_PROFILER=1; waits are known per peer and channel only";

std::string IdText(uint64_t id) { return absl::StrFormat("%016x", id); }

double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

double NetworkWait(const Op& op) {
  return op.send ? op.wait_ns[CW_WAIT_SEND] + op.wait_ns[CW_WAIT_SEND_PEER] : op.wait_ns[CW_WAIT_RECV];
}

void FillQp(const Qp& qp, v1::CollectiveQp& out) {
  out.set_qpn(qp.qpn);
  out.set_slot(-1);
  out.set_requests(qp.requests);
  out.set_bytes(qp.bytes);
  out.set_wire_ns(qp.wire_ns);
  out.set_wire_max_ns(qp.wire_max_ns);
  out.set_open(qp.open);
  out.set_open_ns(std::max(qp.open_ns, 0.0));
}

struct Delays {
  std::vector<int64_t> ns;
  int64_t bound_ns = 0;
  void Add(const Qp& qp) {
    ns.insert(ns.end(), qp.chunk_ns.begin(), qp.chunk_ns.end());
    bound_ns = std::max(bound_ns, qp.chunk_bound_ns);
  }
  bool known() const { return !ns.empty(); }
  // Of so few the nearest: q = 1 is the largest.
  double At(double q) {
    const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(ns.size() - 1) + 0.5);
    std::nth_element(ns.begin(), ns.begin() + at, ns.end());
    return static_cast<double>(ns[static_cast<size_t>(at)]);
  }
  void Fill(v1::ChunkDelay& out) {
    out.set_chunks(ns.size());
    out.set_p50_ns(At(0.5));
    out.set_p99_ns(At(0.99));
    out.set_max_ns(At(1));
    out.set_bound_ns(static_cast<double>(bound_ns));
  }
};

// What chunks' delays say of the queue pair that held a collective back, and of the others.
std::string ChunkSentence(const Collective& coll, uint32_t qpn) {
  Delays of, others;
  for (const Op& op : coll.ops) {
    for (const Qp& qp : op.qps) {
      if (op.send) (qp.qpn == qpn ? of : others).Add(qp);
    }
  }
  if (qpn == 0 || !of.known()) return "";
  const auto text = [](double ns) { return absl::StrFormat("%.3f ms", ns / 1e6); };
  std::string out = absl::StrFormat("; its chunks took %s one way (median of %d, give or take %s)", text(of.At(0.5)),
                                    of.ns.size(), text(static_cast<double>(of.bound_ns)));
  if (others.known()) absl::StrAppend(&out, ", those of the other queue pairs ", text(others.At(0.5)));
  return out;
}

void FillPeer(const Op& op, int64_t now_ns, v1::CollectivePeer& out) {
  out.set_rank(op.peer);
  out.set_channel(op.channel);
  out.set_send(op.send);
  out.set_steps(op.steps);
  out.set_steps_done(op.steps_done);
  out.set_bytes(op.bytes);
  out.set_send_gpu_wait_ns(op.wait_ns[CW_WAIT_SEND_GPU]);
  out.set_send_peer_wait_ns(op.wait_ns[CW_WAIT_SEND_PEER]);
  out.set_send_wait_ns(op.wait_ns[CW_WAIT_SEND]);
  out.set_recv_wait_ns(op.wait_ns[CW_WAIT_RECV]);
  out.set_recv_flush_wait_ns(op.wait_ns[CW_WAIT_RECV_FLUSH]);
  out.set_recv_gpu_wait_ns(op.wait_ns[CW_WAIT_RECV_GPU]);
  out.set_done(op.done);
  if (!op.done && op.state != CW_WAIT_NONE) {
    out.set_state(StateName(op.state));
    out.set_state_ns(static_cast<double>(now_ns - op.state_since_ns));
  }
  for (const Qp& qp : op.qps) {
    FillQp(qp, *out.add_qps());
    Delays delays;
    delays.Add(qp);
    if (delays.known()) delays.Fill(*out.mutable_qps()->rbegin()->mutable_chunk_delay());
  }
}

void FillChunks(std::map<uint32_t, Delays>& by_qp, v1::Job& out) {
  Delays all;
  for (auto& [qpn, delays] : by_qp) {
    all.ns.insert(all.ns.end(), delays.ns.begin(), delays.ns.end());
    all.bound_ns = std::max(all.bound_ns, delays.bound_ns);
    v1::CollectiveQp& qp = *out.add_chunk_qps();
    qp.set_qpn(qpn);
    qp.set_slot(-1);
    delays.Fill(*qp.mutable_chunk_delay());
  }
  if (all.known()) all.Fill(*out.mutable_chunk_delay());
  auto& qps = *out.mutable_chunk_qps();
  std::stable_sort(qps.begin(), qps.end(), [](const v1::CollectiveQp& a, const v1::CollectiveQp& b) {
    return a.chunk_delay().p50_ns() > b.chunk_delay().p50_ns();
  });
  while (qps.size() > kMostChunkQps) qps.RemoveLast();
}

// Of the newest collectives; only sends have times of the network.
uint32_t SlowestQpTo(const Book& book, uint64_t comm, int peer) {
  uint32_t qpn = 0;
  double most_ns = 0;
  size_t looked = 0;
  for (auto coll = book.done().rbegin(); coll != book.done().rend() && looked < 64; ++coll) {
    if (coll->comm != comm) continue;
    ++looked;
    for (const Op& op : coll->ops) {
      for (const Qp& qp : op.qps) {
        if (!op.send || op.peer != peer || qp.wire_max_ns <= most_ns) continue;
        most_ns = qp.wire_max_ns;
        qpn = qp.qpn;
      }
    }
  }
  return qpn;
}

double AlgorithmBytesPerS(const Collective& coll) {
  const double duration_ns = coll.done ? coll.DurationNs() : 0;
  return duration_ns > 0 ? static_cast<double>(coll.bytes) / duration_ns * 1e9 : 0;
}

// Not later than now, whatever a stranger claims.
double Ago(int64_t now_ns, int64_t then_ns) { return then_ns > now_ns ? 0 : Seconds(now_ns - then_ns); }

}  // namespace

std::string Profiles::LabelOf(const Process& process, const Comm* comm) {
  if (!process.label.empty()) return process.label;
  return comm == nullptr ? "" : comm->name;
}

bool Profiles::Matches(const Process& process, const Comm* comm, const std::string& job) {
  return job.empty() || LabelOf(process, comm) == job || (comm != nullptr && IdText(comm->id) == job);
}

v1::Collective Profiles::View(const Process& process, const Collective& coll, int64_t now_ns) const {
  v1::Collective out;
  const auto found = process.book.comms().find(coll.comm);
  const Comm* comm = found == process.book.comms().end() ? nullptr : &found->second;
  out.set_job_id(comm == nullptr ? "" : IdText(comm->id));
  out.set_label(LabelOf(process, comm));
  out.set_pid(process.pid);
  out.set_rank(comm == nullptr ? -1 : comm->rank);
  out.set_ranks(comm == nullptr ? 0 : comm->ranks);
  out.set_seq(coll.seq);
  out.set_function(coll.function);
  out.set_bytes(coll.bytes);
  out.set_algorithm(coll.algorithm);
  out.set_protocol(coll.protocol);
  out.set_datatype(coll.datatype);
  out.set_channels(coll.channels);
  out.set_peer(coll.p2p ? coll.root : -1);
  out.set_enqueued_ago_s(Ago(now_ns, coll.start_ns));
  out.set_slow(coll.slow);
  out.set_usual_ns(coll.usual_ns);
  out.set_cut(coll.cut);
  out.set_state(coll.done          ? v1::Collective::STATE_DONE
                : coll.stall_told  ? v1::Collective::STATE_STALLED
                : coll.ops.empty() ? v1::Collective::STATE_ENQUEUED
                                   : v1::Collective::STATE_RUNNING);
  if (coll.first_ns > 0) {
    out.set_queued_ns(static_cast<double>(std::max<int64_t>(coll.first_ns - coll.start_ns, 0)));
    out.set_duration_ns(coll.done ? coll.DurationNs()
                                  : static_cast<double>(std::max<int64_t>(now_ns - coll.first_ns, 0)));
  }
  out.set_algorithm_bytes_per_s(AlgorithmBytesPerS(coll));
  out.set_bus_bytes_per_s(out.algorithm_bytes_per_s() * BusFactor(coll.function, out.ranks()));
  std::vector<const Op*> ops;
  for (const Op& op : coll.ops) ops.push_back(&op);
  std::stable_sort(ops.begin(), ops.end(), [](const Op* a, const Op* b) { return NetworkWait(*a) > NetworkWait(*b); });
  for (const Op* op : ops) FillPeer(*op, now_ns, *out.add_peers());
  const Verdict verdict = Judge(coll);
  out.set_held(absl::StrCat(Sentence(verdict, ""), ChunkSentence(coll, verdict.qpn)));
  Delays delays;
  for (const Op& op : coll.ops) {
    for (const Qp& qp : op.qps) delays.Add(qp);
  }
  if (delays.known()) delays.Fill(*out.mutable_chunk_delay());
  out.set_network(verdict.held == Held::kNetwork);
  out.set_held_qpn(verdict.qpn);
  return out;
}

void Profiles::FillJob(const Process& process, const Comm& comm, const OpenNow& open, int64_t now_ns,
                       v1::Job& out) const {
  out.set_id(IdText(comm.id));
  out.set_label(LabelOf(process, &comm));
  out.set_name(comm.name);
  out.set_pid(process.pid);
  out.set_process(process.name);
  out.set_rank(comm.rank);
  out.set_ranks(comm.ranks);
  out.set_nodes(comm.nodes);
  out.set_profiler_version(comm.profiler);
  out.set_ended(comm.ended || process.closed_ns != 0);
  out.set_collectives(comm.done);
  out.set_lost(process.memory->lost());
  out.set_dropped(process.memory->Dropped());
  out.set_queue_pair_events(process.seen_qps);
  if (!process.seen_qps && comm.done > 0) out.set_note(kNoQps);
  double bus = 0;
  uint64_t count = 0;
  std::map<int, double> waits;
  std::map<uint32_t, Delays> chunks;  // by queue pair
  for (const Collective& coll : process.book.done()) {
    if (coll.comm != comm.handle || now_ns - coll.last_ns > kWindowNs) continue;
    ++count;
    bus += AlgorithmBytesPerS(coll) * BusFactor(coll.function, comm.ranks);
    for (const Op& op : coll.ops) {
      waits[op.peer] += NetworkWait(op);
      for (const Qp& qp : op.qps) {
        if (!qp.chunk_ns.empty()) chunks[qp.qpn].Add(qp);
      }
    }
  }
  out.set_collectives_per_s(static_cast<double>(count) / Seconds(kWindowNs));
  out.set_bus_bytes_per_s(count > 0 ? bus / static_cast<double>(count) : 0);
  FillChunks(chunks, out);
  out.set_slowest_peer(-1);
  for (const auto& [peer, ns] : waits) {
    if (ns <= out.slowest_wait_ns()) continue;
    out.set_slowest_peer(peer);
    out.set_slowest_wait_ns(ns);
    out.set_slowest_qpn(SlowestQpTo(process.book, comm.handle, peer));
  }
  const Collective* oldest = nullptr;
  for (const auto& [handle, coll] : process.book.open()) {
    if (coll.comm == comm.handle && (oldest == nullptr || coll.start_ns < oldest->start_ns)) oldest = &coll;
  }
  if (oldest != nullptr && !out.ended()) *out.mutable_running() = View(process, Book::Running(*oldest, open), now_ns);
}

v1::ListJobsReply Profiles::Jobs(const v1::ListJobsRequest& request, int64_t now_ns) const {
  v1::ListJobsReply reply;
  for (const auto& [connection, process] : processes_) {
    const OpenNow open = Open(*process, now_ns);
    for (const auto& [handle, comm] : process->book.comms()) {
      if (Matches(*process, &comm, request.job())) FillJob(*process, comm, open, now_ns, *reply.add_jobs());
    }
  }
  std::stable_sort(reply.mutable_jobs()->begin(), reply.mutable_jobs()->end(), [](const v1::Job& a, const v1::Job& b) {
    return std::tuple(a.label(), a.id(), a.rank()) < std::tuple(b.label(), b.id(), b.rank());
  });
  return reply;
}

v1::ListCollectivesReply Profiles::Collectives(const v1::ListCollectivesRequest& request, int64_t now_ns) const {
  struct Found {
    const Process* process;
    const Collective* coll;
  };
  const int64_t oldest_ns =
      request.done_within_s() > 0 ? now_ns - static_cast<int64_t>(request.done_within_s() * 1e9) : INT64_MIN;
  std::vector<Found> all;
  std::deque<Collective> running;  // with what is open of them
  for (const auto& [connection, process] : processes_) {
    const auto add = [&, &p = *process](const Collective& coll) {
      const auto comm = p.book.comms().find(coll.comm);
      if (request.slow() && !coll.slow && !coll.stall_told) return;
      if (coll.done && coll.last_ns < oldest_ns) return;
      if (Matches(p, comm == p.book.comms().end() ? nullptr : &comm->second, request.job())) all.push_back({&p, &coll});
    };
    for (const Collective& coll : process->book.done()) add(coll);
    if (process->book.open().empty()) continue;
    const OpenNow open = Open(*process, now_ns);
    for (const auto& [handle, coll] : process->book.open()) add(running.emplace_back(Book::Running(coll, open)));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Found& a, const Found& b) { return a.coll->start_ns < b.coll->start_ns; });
  const size_t most = std::min(request.last() == 0 ? kDefaultLast : request.last(), kMostLast);
  if (all.size() > most) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(most));
  v1::ListCollectivesReply reply;
  for (const Found& found : all) *reply.add_collectives() = View(*found.process, *found.coll, now_ns);
  for (const auto& [coll, found_ns] : stalls_) {
    if (request.job().empty() || coll.label() == request.job() || coll.job_id() == request.job())
      *reply.add_stalls() = coll;
  }
  return reply;
}

std::optional<v1::Collective> Profiles::NewestOn(uint32_t pid, uint32_t qpn, int64_t now_ns) const {
  const auto uses = [&](const Collective& coll) {
    return std::any_of(coll.ops.begin(), coll.ops.end(), [&](const Op& op) {
      return op.send && std::any_of(op.qps.begin(), op.qps.end(), [&](const Qp& qp) { return qp.qpn == qpn; });
    });
  };
  const Process* of = nullptr;
  Collective newest;
  for (const auto& [connection, process] : processes_) {
    if (pid != 0 && process->pid != pid) continue;
    const auto look = [&, &p = *process](const Collective& coll) {
      if ((of != nullptr && coll.start_ns < newest.start_ns) || !uses(coll)) return;
      of = &p;
      newest = coll;
    };
    for (const Collective& coll : process->book.done()) look(coll);
    if (process->book.open().empty()) continue;
    const OpenNow open = Open(*process, now_ns);
    for (const auto& [handle, coll] : process->book.open()) look(Book::Running(coll, open));
  }
  if (of == nullptr) return std::nullopt;
  return View(*of, newest, now_ns);
}

}  // namespace cw::profile
