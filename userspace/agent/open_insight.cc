// SPDX-License-Identifier: Apache-2.0
// Why flows are slow, what they carry, and the processes that tell of them.
#include <sys/resource.h>

#include <algorithm>

#include "userspace/agent/agent.h"
#include "userspace/agent/engine_mail.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/flows/kernel_qps.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/flows/placer.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/chunks.h"
#include "userspace/agent/insight/gaps.h"
#include "userspace/agent/insight/jobs.h"
#include "userspace/agent/label_book.h"
#include "userspace/agent/rules_of_config.h"
#include "userspace/agent/views/flows_view.h"

namespace cw::agent {
namespace {

constexpr absl::Duration kKernelQpPeriod = absl::Seconds(2);
constexpr absl::Duration kJobsPeriod = absl::Milliseconds(100);

uint64_t MostDescriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

}  // namespace

// Parts that tell why flows are slow, and what they carry.
void Agent::OpenInsight() {
  const config::SteeringConfig& steering = options_.config.steering;
  const auto received = [this](const FlowKey& key) { return records_->Received(key); };
  const auto path_facts = [this](uint32_t pair, uint8_t slot) {
    const probe::Discovery* discovery = engine_->discovery(pair);
    const probe::Hops* hops = discovery->HopsOf(engine_->mesh().slots(pair).port(slot));
    Gaps::PathFacts facts{.ports_choose = probe::PortsChoosePaths(discovery->hashing())};
    if (hops != nullptr) facts.hops = hops->size();
    return facts;
  };
  const auto job_of = [this](const FlowKey& flow) -> std::string {
    const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(flow);
    if (!qp) return "";
    api::v1::Flow named;
    flows_view_->AddLabel(*qp, named);
    return named.label().empty() ? qp->comm : named.label();
  };
  const auto locate = [this](const rdma::QpInfo& qp, api::v1::CollectiveQp& out) { flows_view_->Locate(qp, out); };
  const auto awaited = [this](int64_t now_ns) { return jobs_->AwaitedFlows(now_ns); };
  causes_ = std::make_unique<Causes>(flows_, pairs_, nics_, engine_->mesh(), *store_, received, job_of, awaited,
                                     peer_names_, *mail_, journal_);
  causes_->SetRules(steering.find_causes, CauseRulesOf(steering));
  gaps_ = std::make_unique<Gaps>(flows_, pairs_, nics_, engine_->mesh(), path_facts, causes_->book(), peer_names_,
                                 journal_);
  jobs_ =
      std::make_unique<Jobs>(ProfileOptionsOf(options_.config.profile), qps_, *labels_, locate, monotonic_, journal_);
  chunks_ = std::make_unique<Chunks>(jobs_->profiles(), qps_, clocks_->fleet(), *clock_, monotonic_, pairs_,
                                     engine_->mesh(), *mail_);
}

absl::Status Agent::OpenSources() {
  const auto told_before = [this](const rdma::QpInfo& qp) {
    std::optional<rdma::QpInfo> known = qps_.ByReceivedFlow({.dst = qp.laddr, .dqpn = qp.lqpn});
    return known && known->source == qp.source ? known : std::nullopt;
  };
  // A process speaks for its own queue pairs: rdma/qp_claim.h.
  const auto registered = [this, told_before](const rdma::QpInfo& qp) {
    const std::optional<rdma::QpInfo> known = told_before(qp);
    const bool anew = qps_.TellAnew(qp);
    if (!anew && !qps_.Claim(qp, kernel_qps_->WordOn(qp))) {
      if (known && known->pid == qp.pid) owner_mover_->OnOwnerGone(*known);
      return;
    }
    owner_mover_->OnOwner(qp, anew && known && known->owner && qp.owner && qp.owner->messages > known->owner->messages);
  };
  const auto unregistered = [this, told_before](const rdma::QpInfo& qp) {
    const std::optional<rdma::QpInfo> known = told_before(qp);
    if (!known || known->pid != qp.pid) return;
    qps_.Unregister(qp);
    owner_mover_->OnOwnerGone(qp);
  };
  const config::InprocConfig& limits = options_.config.inproc;
  absl::StatusOr<std::unique_ptr<rdma::InprocServer>> inproc = rdma::InprocServer::Listen(
      options_.config.RunDir() + "/inproc.sock",
      {.registered = registered,
       .unregistered = unregistered,
       .place = [this](const rdma::QpInfo& qp, const rdma::Requester& who) { return placer_->Place(qp, who); },
       .profiler =
           [this](const rdma::InprocServer::Peer& peer, absl::Span<const uint8_t> message) {
             jobs_->OnProfiler(peer, message, [this, &peer](const auto& answer, int fd) {
               return inproc_->Give(peer.connection, answer, fd);
             });
           },
       .closed = [this](const rdma::InprocServer::Peer& peer) { jobs_->OnClosed(peer); },
       .strange = [this](const rdma::InprocServer::Peer& peer) { jobs_->OnStranger(peer); },
       .moved = [this](const rdma::QpInfo& qp, const rdma::MoveResult& result) { owner_mover_->OnMoved(qp, result); }},
      rdma::Within({.max_qps = static_cast<size_t>(limits.max_qps),
                    .messages_per_second = static_cast<double>(limits.messages_per_second)},
                   MostDescriptors()));
  if (!inproc.ok()) return inproc.status();
  inproc_ = std::move(*inproc);
  absl::Status status = loop_->AddFd(inproc_->fd(), [this] { inproc_->Poll(); });
  status.Update(loop_->AddTimer(kJobsPeriod, [this] {
    if (jobs_->Read()) chunks_->Read();
  }));
  if (!status.ok()) return status;
  return loop_->AddTimer(kKernelQpPeriod, [this] { kernel_qps_->Read(); });
}

}  // namespace cw::agent
