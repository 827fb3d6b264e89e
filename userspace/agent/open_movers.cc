// SPDX-License-Identifier: Apache-2.0
// Who moves flows, for balance and off what is lost.
#include <algorithm>
#include <cmath>
#include <random>

#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/balance/last_look.h"
#include "userspace/agent/balance/moves.h"
#include "userspace/agent/balance/window.h"
#include "userspace/agent/engine_mail.h"
#include "userspace/agent/engine_ticks.h"
#include "userspace/agent/flows/draining.h"
#include "userspace/agent/flows/flow_ends.h"
#include "userspace/agent/flows/flow_reader.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/flows/kernel_qps.h"
#include "userspace/agent/flows/move_news.h"
#include "userspace/agent/flows/native_ports.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/flows/placer.h"
#include "userspace/agent/flows/qp_moments.h"
#include "userspace/agent/flows/steering.h"
#include "userspace/agent/flows/unseen.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/nics/nic_failover.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/paths/size_check.h"
#include "userspace/agent/recovery/rerolls.h"
#include "userspace/agent/recovery/returns.h"
#include "userspace/agent/recovery/tails.h"
#include "userspace/agent/scopes.h"
#include "userspace/agent/views/flows_view.h"
#include "userspace/agent/views/paths_view.h"
#include "userspace/dataplane/packet_injector.h"
#include "userspace/model/boot_id.h"

namespace cw::agent {
namespace {

// How long ago the oldest of its paths was seen to take these hops; there is no table: for ever.
double UntracedS(const probe::Discovery* discovery, int64_t now_ns) {
  if (discovery == nullptr || discovery->table().paths.empty()) return INFINITY;
  double oldest_s = 0;
  for (const probe::Path& path : discovery->table().paths)
    oldest_s = std::max(oldest_s, static_cast<double>(now_ns - path.verified_ns) / 1e9);
  return oldest_s;
}

}  // namespace

// Who moves flows: the kernel's program, and the libraries in the processes whose packets it does not see. What left a
// bad path by either comes back by it; where flows move for balance, that rule takes what recovered into use.
void Agent::OpenMovers() {
  const auto in_motion = [this](uint32_t pair) {
    const probe::Discovery* discovery = engine_->discovery(pair);
    return discovery != nullptr && discovery->InMotion();
  };
  const auto fold = [this](uint32_t pair, uint16_t port) { return engine_->discovery(pair)->Fold(port); };
  const auto watch = [this](uint32_t pair, uint16_t port, uint32_t label) {
    const uint8_t slot = engine_->EnsureNative(pair, port, NowNs(), label);
    ticks_->Schedule();
    return slot;
  };
  unseen_ = std::make_unique<UnseenFlows>(
      pairs_, nics_, flows_, qps_, engine_->mesh(),
      UnseenFlows::Asks{.assigns = [this] { return options_.config.steering.assign_new_flows; },
                        .fold = fold,
                        .watch = [watch](uint32_t pair, uint16_t port) { return watch(pair, port, /*label=*/0); },
                        .release = [this](uint32_t pair, uint16_t port,
                                          const FlowKey& user) { natives_->Release(pair, port, user); }});
  natives_ = std::make_unique<NativePorts>(
      flows_, *records_, *unseen_, NativePorts::Asks{.watch = watch, .release = [this](uint32_t pair, uint16_t port) {
                                                       engine_->ReleaseNative(pair, port, NowNs());
                                                     }});
  const auto left_to = [](std::unique_ptr<Returns>& returns) {
    return [&returns](const FlowKey& flow, uint32_t pair, control::ReturnPlace from, control::ReturnPlace to) {
      returns->Left(flow, pair, from, to);
    };
  };
  kernel_mover_ = std::make_unique<KernelMover>(
      pairs_, flows_, *records_, engine_->mesh(), peer_names_, journal_,
      KernelMover::Asks{.in_motion = in_motion, .left = left_to(returns_), .allowed = modes_->may()});
  owner_mover_ = std::make_unique<OwnerMover>(
      pairs_, flows_, qps_, *unseen_, engine_->mesh(), peer_names_, monotonic_, journal_,
      OwnerMover::Asks{.allowed = modes_->may(),
                       .send = [this](const std::vector<rdma::MoveOrder>& orders) { return inproc_->Move(orders); },
                       .fold = fold,
                       .left = left_to(owner_returns_)});
  // What the kernel did: a flow left a dead path, or a wish came true, perhaps one of balance.
  const auto made = [this](const cw_ev_move& move) {
    const FlowKey key = FromMap(move.key);
    if (move.reason == CW_MOVE_DEAD) {
      tails_->OnMovedOffDead(move);
      returns_->Left(key, move.pair, {move.from_slot, move.from_port}, {move.to_slot, move.to_port});
      breaker_->Forget(key);
    }
    if (balance_->OnMade(move)) breaker_->OnMoved(move);
  };
  move_news_ =
      std::make_unique<MoveNews>(peer_names_, *dry_run_, journal_,
                                 MoveNews::Asks{.appeared = [this] { pace_.Hurry(MonotonicNs()); }, .made = made});
  const absl::Duration step = options_.config.steering.return_step;
  returns_ = std::make_unique<Returns>(step, pairs_, engine_->mesh(), peer_names_, *kernel_mover_, journal_,
                                       [this](uint32_t pair, const FlowKey& flow) {
                                         const Allowed may = modes_->may()(pair, flow);
                                         const bool balanced = breaker_->MayBalance() && may.Acts(Capability::kBalance);
                                         return may.ActsAtAll() && !balanced;
                                       });
  owner_returns_ = std::make_unique<Returns>(
      step, pairs_, engine_->mesh(), peer_names_, *owner_mover_, journal_,
      [this](uint32_t pair, const FlowKey& flow) { return modes_->may()(pair, flow).ActsAtAll(); });
}

// What is read of flows and queue pairs, and what leaves the tables.
void Agent::OpenFlows() {
  flow_reader_ = std::make_unique<FlowReader>(
      flows_, *records_, pairs_, qps_, engine_->mesh(), *natives_, *totals_, peer_names_, monotonic_, journal_,
      FlowReader::Asks{.set_active = [this](uint32_t pair, bool active) { engine_->SetActive(pair, active); },
                       .set_class = [this](uint32_t pair, uint8_t dscp) { engine_->SetDscp(pair, dscp); },
                       .follows_classes = [this] { return !options_.config.probe.dscp.has_value(); },
                       .loss_limit = [this] { return options_.config.steering.loss_limit; }});
  flow_ends_ = std::make_unique<FlowEnds>(
      flows_, *records_, pairs_, qps_, *unseen_, *natives_, dataplane_->ctl()[0],
      [this](int64_t ns) { return jiffies_->AtNs(ns); }, monotonic_, journal_);
  kernel_qps_ = std::make_unique<KernelQps>(nics_, qps_, *owner_mover_, *flow_ends_, rdma::NldevClient::Open);
  qp_moments_ = std::make_unique<QpMoments>(nics_, qps_, *kernel_qps_, *owner_mover_, *flow_ends_, peer_names_,
                                            monotonic_, journal_);
}

// Queue pairs that ask for a path while they connect.
void Agent::OpenPlacer() {
  const auto paths_known = [this](uint32_t pair) {
    const probe::Discovery* discovery = engine_->discovery(pair);
    return discovery->table().valid && probe::PortsChoosePaths(discovery->hashing());
  };
  placer_ = std::make_unique<Placer>(
      pairs_, nics_, qps_, *owner_mover_, engine_->mesh(), journal_,
      Placer::Asks{.allowed =
                       [this](uint32_t pair, const rdma::QpInfo& qp) {
                         if (!options_.config.inproc.place) return Allow::kOff;
                         api::v1::Flow named;  // it is not registered yet
                         flows_view_->AddLabel(qp, named);
                         return modes_->may()(pair).Less(scopes_->OnLabel(named.label())).of(Capability::kPlace);
                       },
                   .paths_known = paths_known,
                   .assigns = [this] { return options_.config.steering.assign_new_flows; },
                   .word_on = [this](const rdma::QpInfo& qp) { return kernel_qps_->WordOn(qp); }});
}

// What operators ask of flows, by whoever moves them.
void Agent::OpenSteering() {
  steering_ = std::make_unique<Steering>(std::vector<Mover*>{kernel_mover_.get(), owner_mover_.get()}, pairs_,
                                         engine_->mesh(), peer_names_, deadlines_, *modes_, monotonic_, journal_);
  draining_ = std::make_unique<Draining>(
      drains_, *kernel_mover_, *owner_mover_, *unseen_, flows_, pairs_, nics_, engine_->mesh(), *modes_, monotonic_,
      journal_,
      Draining::Asks{.discovery = [this](uint32_t pair) { return engine_->discovery(pair); },
                     .paths = [this] { return paths_view_->All({}); },
                     .publish = [this](PairState& pair) { damping_->Publish(pair); },
                     .nic_failover = [this] { return nic_failover_->on(); },
                     .holds_a_job = [this] { return scopes_->HoldsAJob(); },
                     .carried = [this](const PairKey& pair) { return nic_failover_->Carried(pair); },
                     .overflows =
                         [this] {
                           const absl::StatusOr<cw_counters> sums = dataplane_->counters().Sum();
                           return sums.ok() ? sums->steer_full : uint64_t{0};
                         },
                     .unplaced =
                         [this] {
                           const absl::StatusOr<cw_counters> sums = dataplane_->counters().Sum();
                           return sums.ok() ? sums->gso_frames + sums->ip_options + sums->ip6_extension : uint64_t{0};
                         },
                     .untraced_s = [this](uint32_t pair) { return UntracedS(engine_->discovery(pair), NowNs()); },
                     .trace_soon =
                         [this](uint32_t pair) {
                           engine_->DoubtPaths(pair, NowNs());
                           ticks_->Schedule();
                         },
                     .has_qp = [this](const FlowKey& flow) { return qps_.BySentFlow(flow).has_value(); }});
}

// What narrows the mode; whoever acts asks the modes.
void Agent::OpenScopes() {
  const auto label = [this](const FlowKey& flow) -> std::string {
    const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(flow);
    api::v1::Flow named;
    if (qp && flows_view_ != nullptr) flows_view_->AddLabel(*qp, named);
    return named.label();
  };
  scopes_ =
      std::make_unique<Scopes>(options_.config.RunDir() + "/" + Scopes::kFile, BootId(), *modes_, nics_, pairs_, flows_,
                               *records_, engine_->mesh(), monotonic_, journal_, Scopes::Asks{.label = label});
  scopes_->Take(options_.config.scopes);
  if (const absl::Status loaded = scopes_->Load(); absl::IsInvalidArgument(loaded))
    spdlog::warn("modes that an operator set for NICs and labels are lost: {}", std::string(loaded.message()));
  modes_->Narrow([this](uint32_t pair, const FlowKey* flow) { return scopes_->Withheld(pair, flow); });
}

// What the agent before us was asked for.
absl::Status Agent::AdoptWishes() {
  steering_->Adopt(dataplane_->adopted(), [this] { flow_reader_->ReadSent(window_->began_ns()); });
  draining_->Adopt();
  return absl::OkStatus();
}

// Moves for balance, from what a window saw to the kernel's wish.
void Agent::OpenBalance() {
  const config::Config& config = options_.config;
  const May& may = modes_->may();
  const auto paths_known = [this](uint32_t pair) {
    const probe::Discovery* discovery = engine_->discovery(pair);
    return discovery != nullptr && discovery->table().valid && probe::PortsSeenToChoose(discovery->hashing());
  };
  breaker_ = std::make_unique<Breaker>(config.steering.breaker, config.steering.breaker_hold, pairs_, flows_, *records_,
                                       peer_names_, monotonic_, journal_,
                                       Breaker::Asks{.allowed = may, .take_back = [this] { balance_->TakeBack(); }});
  const auto look = [this] { return LastLookWait(options_.config.probe.active_interval, Window()); };
  const auto hurry = [this](uint32_t pair, absl::Duration time) {
    engine_->Hurry(pair, absl::ToInt64Nanoseconds(time));
  };
  balance_ = std::make_unique<BalanceMoves>(
      pairs_, *records_, engine_->mesh(), *contention_, *breaker_, peer_names_, *clock_, monotonic_, *loop_, *dry_run_,
      journal_,
      BalanceMoves::Asks{
          .allowed = may, .paths_known = paths_known, .look = look, .hurry = hurry, .read_probes = [this] {
            ReadProbes();
          }});
  window_ = std::make_unique<ContentionWindow>(
      *contention_, pairs_, flows_, engine_->mesh(), peer_names_, *balance_, *dry_run_, journal_,
      ContentionWindow::Asks{.paths_known = paths_known,
                             .hops = [this](uint32_t pair, uint8_t slot) { return HopsOf(pair, slot); },
                             .path_bps = [this] { return options_.config.steering.path_gbps * 1e9; }});
  window_->Record(config.log.observations_file, static_cast<uint64_t>(config.log.observations_mib) << 20,
                  {.host = vitals_.host_name, .version = kVersion});
}

// Who looks after what was on a path that is lost, in this order.
void Agent::OpenRecovery() {
  const May& may = modes_->may();
  tails_ = std::make_unique<Tails>(pairs_, *records_, qps_, engine_->mesh(), peer_names_, monotonic_, *loop_, *mail_,
                                   *dry_run_, journal_, Tails::Asks{.allowed = may, .deliver = OpenInjector()});
  const auto hashing = [this](uint32_t pair) {
    const probe::Discovery* discovery = engine_->discovery(pair);
    return discovery == nullptr ? std::nullopt : std::make_optional(discovery->hashing());
  };
  rerolls_ = std::make_unique<Rerolls>(
      pairs_, *records_, engine_->mesh(), peer_names_, monotonic_, *loop_, journal_, std::random_device{}(),
      Rerolls::Asks{
          .allowed = may, .hashing = hashing, .rolled = [this](const FlowKey& flow) { tails_->OnRerolled(flow); }});
  path_lost_ = {
      [this](const PathLost& lost) { SizeCheck::Hurry(lost.pair, lost.slot, MonotonicNs()); },
      [this](const PathLost& lost) { rerolls_->OnPathLost(lost); },
      // Before the flows go: what was under way is asked for again, by the path that they take.
      [this](const PathLost& lost) { tails_->OnPathLost(lost); },
      [this](const PathLost& lost) { kernel_mover_->OnPathLost(lost); },
      [this](const PathLost& lost) { owner_mover_->OnPathLost(lost); },
  };
}

// Empty: not wanted, or the kernel cannot.
std::function<absl::Status(uint32_t, absl::Span<const uint8_t>)> Agent::OpenInjector() {
  if (!options_.config.steering.repair_tails) return {};
  absl::StatusOr<dataplane::PacketInjector> opened = dataplane::PacketInjector::Create();
  if (opened.ok()) {
    const auto injector = std::make_shared<const dataplane::PacketInjector>(*std::move(opened));
    return
        [injector](uint32_t ifindex, absl::Span<const uint8_t> packet) { return injector->Deliver(ifindex, packet); };
  }
  Log({.type = "repair",
       .severity = telemetry::Severity::kNotice,
       .text =
           "what dies with a path waits for its queue pair's own timer: " + std::string(opened.status().message())});
  return {};
}

}  // namespace cw::agent
