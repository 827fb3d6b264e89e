// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/insight/jobs.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "spdlog/spdlog.h"
#include "userspace/profile/hello.h"

namespace cw::agent {
namespace {

std::string PlaceText(const v1::CollectiveQp& qp) {
  std::string out = absl::StrCat("; flow ", qp.flow());
  if (!qp.nic().empty()) absl::StrAppend(&out, " on ", qp.nic());
  if (qp.slot() >= 0) absl::StrAppend(&out, ", path ", qp.slot());
  if (!qp.peer().empty()) absl::StrAppend(&out, " to ", qp.peer());
  if (qp.hops_size() > 0) absl::StrAppend(&out, " by ", absl::StrJoin(qp.hops(), " "));
  return out;
}

std::string Title(const v1::Collective& c) {
  const std::string& job = c.label().empty() ? c.job_id() : c.label();
  return absl::StrFormat("%s%s of %s, rank %d of %d", c.function(), c.peer() < 0 ? absl::StrCat(" ", c.seq()) : "", job,
                         c.rank(), c.ranks());
}

}  // namespace

QpsByNumber::QpsByNumber(const rdma::QpRegistry& qps) {
  qps.ForEach([this](const rdma::QpInfo& qp) {
    if (qp.rqpn != 0) by_number_[qp.lqpn].push_back(&qp);
  });
}

const rdma::QpInfo* QpsByNumber::Find(uint32_t pid, uint32_t qpn) const {
  const auto found = by_number_.find(qpn);
  if (found == by_number_.end()) return nullptr;
  for (const rdma::QpInfo* qp : found->second) {
    if (qp->pid == pid) return qp;
  }
  return found->second.size() == 1 ? found->second.front() : nullptr;
}

Jobs::Jobs(const profile::ProfileOptions& options, const rdma::QpRegistry& qps, LabelBook& labels, Locate locate,
           const Clock& monotonic, EventSink& events)
    : qps_(qps),
      labels_(labels),
      locate_(std::move(locate)),
      monotonic_(monotonic),
      events_(events),
      profiles_(options) {}

void Jobs::OnProfiler(const rdma::InprocServer::Peer& peer, absl::Span<const uint8_t> message,
                      const profile::Give& give) {
  const absl::Status status = profile::TakeHello(profiles_, peer.connection, peer.pid, peer.uid, message, give);
  if (status.ok() || !MayTellOfStrangers()) return;
  spdlog::warn("process {}: {}", peer.pid, std::string(status.message()));
}

// Any process can be the reason, as often as it likes.
bool Jobs::MayTellOfStrangers() {
  constexpr int64_t kEveryNs = 60'000'000'000;
  const int64_t now_ns = monotonic_.NowNs();
  if (stranger_told_ns_ != 0 && now_ns - stranger_told_ns_ < kEveryNs) return false;
  stranger_told_ns_ = now_ns;
  return true;
}

void Jobs::OnStranger(const rdma::InprocServer::Peer& peer) {
  if (!MayTellOfStrangers()) return;
  spdlog::warn(
      "process {} of user {} sent a descriptor over inproc.sock, or hung up without a word, as who is refused one "
      "does: "
      "none is taken. Where it is a training, its NCCL profiler plug-in is of an earlier release: install "
      "libnccl-profiler-cwfabric of this one there. Others are told of once a minute at most",
      peer.pid, peer.uid);
}

bool Jobs::Read() {
  if (profiles_.empty()) return false;
  profiles_.Poll(monotonic_.NowNs(), [this](const profile::Stall& stall) { TellOfStall(stall); });
  return true;
}

void Jobs::TellOfStall(const profile::Stall& stall) {
  v1::Collective collective = stall.collective;
  LocateQps(QpsByNumber(qps_), collective);
  std::string peer;
  int slot = -1;
  for (const v1::CollectivePeer& op : collective.peers()) {
    for (const v1::CollectiveQp& qp : op.qps()) {
      if (collective.held_flow().empty() || qp.flow() != collective.held_flow()) continue;
      peer = qp.peer();
      slot = qp.slot();
    }
  }
  const std::string why = collective.held().empty() ? "no operation of it waits for anything" : collective.held();
  events_.Log({.type = "job",
               .severity = telemetry::Severity::kAlert,
               .text = absl::StrFormat("%s stands for %.1f s: %s", Title(collective), stall.stands_s, why),
               .flow = collective.held_flow(),
               .peer = peer,
               .slot = slot,
               .evidence = {{"job", collective.job_id()},
                            {"pid", absl::StrCat(collective.pid())},
                            {"network", collective.network() ? "yes" : "no"},
                            {"qpn", absl::StrFormat("0x%x", collective.held_qpn())}}});
}

void Jobs::LocateQps(const QpsByNumber& known, v1::Collective& collective) {
  const v1::CollectiveQp* held = nullptr;
  for (v1::CollectivePeer& op : *collective.mutable_peers()) {
    for (v1::CollectiveQp& out : *op.mutable_qps()) {
      const rdma::QpInfo* qp = known.Find(collective.pid(), out.qpn());
      if (qp == nullptr) continue;
      locate_(*qp, out);
      if (op.send() && out.qpn() == collective.held_qpn()) held = &out;
    }
  }
  if (held == nullptr || !collective.network()) return;
  collective.set_held_flow(held->flow());
  collective.set_held(absl::StrCat(collective.held(), PlaceText(*held)));
}

v1::ListJobsReply Jobs::List(const v1::ListJobsRequest& request) {
  v1::ListJobsReply reply = profiles_.Jobs(request, monotonic_.NowNs());
  const QpsByNumber known(qps_);
  for (v1::Job& job : *reply.mutable_jobs()) {
    if (job.has_running()) LocateQps(known, *job.mutable_running());
    for (v1::CollectiveQp& out : *job.mutable_chunk_qps()) {
      if (const rdma::QpInfo* qp = known.Find(job.pid(), out.qpn()); qp != nullptr) locate_(*qp, out);
    }
    if (const Label* label = labels_.Of(job.pid()); label != nullptr && job.label().empty())
      job.set_label(label->label);
    const rdma::QpInfo* qp = known.Find(job.pid(), job.slowest_qpn());
    if (job.slowest_qpn() == 0 || qp == nullptr) continue;
    v1::CollectiveQp placed;
    locate_(*qp, placed);
    job.set_slowest_flow(placed.flow());
    job.set_slowest_peer_host(placed.peer());
  }
  return reply;
}

v1::ListCollectivesReply Jobs::Collectives(const v1::ListCollectivesRequest& request) {
  v1::ListCollectivesReply reply = profiles_.Collectives(request, monotonic_.NowNs());
  const QpsByNumber known(qps_);
  for (v1::Collective& collective : *reply.mutable_collectives()) LocateQps(known, collective);
  for (v1::Collective& collective : *reply.mutable_stalls()) LocateQps(known, collective);
  return reply;
}

absl::flat_hash_set<FlowKey> Jobs::AwaitedFlows(int64_t now_ns) {
  absl::flat_hash_set<FlowKey> flows;
  const std::vector<profile::QpOfProcess> awaited = profiles_.AwaitedSends(now_ns);
  if (awaited.empty()) return flows;
  const QpsByNumber known(qps_);
  for (const profile::QpOfProcess& at : awaited) {
    if (const rdma::QpInfo* qp = known.Find(at.pid, at.qpn); qp != nullptr)
      flows.insert({.src = qp->laddr, .dst = qp->raddr, .dqpn = qp->rqpn});
  }
  return flows;
}

// The job's name where the owner of the queue pair gave none, and the collective that it carried last.
void Jobs::FillCollective(const FlowKey& key, v1::WhyReply& reply) {
  const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(key);
  if (!qp || profiles_.empty()) return;
  const int64_t now_ns = monotonic_.NowNs();
  std::optional<v1::Collective> newest = profiles_.NewestOn(qp->pid, qp->lqpn, now_ns);
  if (!newest) newest = profiles_.NewestOn(0, qp->lqpn, now_ns);
  if (!newest) return;
  LocateQps(QpsByNumber(qps_), *newest);
  if (reply.flow().label().empty()) reply.mutable_flow()->set_label(newest->label());
  *reply.mutable_collective() = *std::move(newest);
}

}  // namespace cw::agent
