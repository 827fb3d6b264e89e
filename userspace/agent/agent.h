// SPDX-License-Identifier: Apache-2.0
//
// The agent of one host: wires the dataplane, the probes, the clocks of the peers, telemetry and control together.
//
// Thread rule: Start, Run and the destructor on one thread; Stop from any thread (or a signal handler's thread). The
// AgentView calls come from the API's threads and are handed to the loop.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "sync/pair_estimator.h"
#include "userspace/agent/config_in_force.h"
#include "userspace/agent/counter_sink.h"
#include "userspace/agent/deadlines.h"
#include "userspace/agent/drains.h"
#include "userspace/agent/fleet_clock/clock_anchor.h"
#include "userspace/agent/fleet_clock/line_clock.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/group_keys.h"
#include "userspace/agent/journal.h"
#include "userspace/agent/loop.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/paths/path_lost.h"
#include "userspace/agent/peer_names.h"
#include "userspace/agent/peer_plan.h"
#include "userspace/agent/session_keeper.h"
#include "userspace/agent/vitals.h"
#include "userspace/api/agent_api.h"
#include "userspace/api/server.h"
#include "userspace/config/change.h"
#include "userspace/config/config.h"
#include "userspace/control/contention.h"
#include "userspace/dataplane/dataplane.h"
#include "userspace/dataplane/jiffies.h"
#include "userspace/metrics/path_totals.h"
#include "userspace/model/allowed.h"
#include "userspace/model/clock.h"
#include "userspace/probe/engine.h"
#include "userspace/probe/keys.h"
#include "userspace/rdma/inproc_server.h"
#include "userspace/rdma/qp_registry.h"
#include "userspace/telemetry/event_log.h"

namespace cw::dataplane {
class LinkNews;
}
namespace cw::uplink {
struct FlowSeen;
struct PathSeen;
struct SecondSeen;
}  // namespace cw::uplink

namespace cw::agent {

class BalanceMoves;
class Breaker;
class CarryKernel;
class Carriers;
class Causes;
class Chunks;
class ClockKeeper;
class ContentionWindow;
class Damping;
class Draining;
class DryRun;
class FabricNews;
class FlowEnds;
class FlowReader;
class FlowRecords;
class FlowSamples;
class Gaps;
class Jobs;
class KernelMover;
class KernelQps;
class LabelBook;
class Lease;
class LinkFlaps;
class Losses;
class MoveNews;
class NativePorts;
class NicClocks;
class NicFailover;
class OwnerMover;
class PathNews;
class FlowsView;
class PathsView;
class PeerMail;
class PeerWatch;
class Placer;
class ProbeNews;
class QpMoments;
class RdmaWatch;
class Rerolls;
class Returns;
class RingRecorder;
class Scopes;
class StatusView;
class Steering;
class Tails;
class Totals;
class UnseenFlows;
class VerbsProbes;
class WhyView;

extern const char kVersion[];

struct AgentOptions {
  config::Config config;
  std::shared_ptr<const Clock> clock;           // what local time is made of: see LineClock
  std::string lab_clock;                        // pinned path of the lab's hidden clock; production: ""
  KernelTime kernel_time = KernelTime::Real();  // what an anchor is read from
  // The lab's simulated NICs: pinned path of their clock's error, and the clock itself. Production: "" and null.
  std::string lab_nic;
  std::function<std::unique_ptr<sync::NicClock>(std::shared_ptr<const Clock> local)> lab_nic_clock;
};

class Agent final : public api::AgentView {
 public:
  // Loads or adopts the dataplane, attaches, and serves the API. Everything needed is there when it returns.
  static absl::StatusOr<std::unique_ptr<Agent>> Start(AgentOptions options);
  // Leaves the dataplane attached, under its lease.
  ~Agent() override;

  void Run();
  bool ProbesByVerbs() const;  // of any NIC; known once it has started
  void Stop() { loop_->Stop(); }
  // Run returned because a NIC is a new device: the process is to exit with 75, and the next one adopts all.
  bool starts_anew() const { return starts_anew_; }
  // Takes what can change while the agent runs of a configuration that was read anew, all of it or nothing; any thread.
  // What came of it is an event. Returns what is in force now.
  absl::StatusOr<config::Config> Reload(const config::Config& fresh);

  CW_AGENT_VERBS(CW_OVERRIDE_VERB)  // any thread, as all of the API
  absl::StatusOr<std::vector<api::v1::Event>> Events(const api::v1::EventsRequest& request,
                                                     absl::Duration wait) override;
  void Tell(const api::ApiEvent& event) override;
  // For metrics; any thread, as the calls above.
  absl::StatusOr<metrics::PathTotals> PathTotals();
  // For the uplink; any thread.
  absl::StatusOr<std::vector<uplink::PathSeen>> PathsSeen(int seconds);
  // Whether measurements are recorded for the ring file; and what was since the call before, in ns since 1970.
  void RecordForRing(bool wanted);
  absl::StatusOr<uplink::SecondSeen> SecondForRing();
  absl::StatusOr<std::vector<uplink::FlowSeen>> FlowsSeen();
  const std::string& host_name() const { return vitals_.host_name; }  // as of Start

  // Whose work follows whose: in a decision window, and once per second.
  enum class Round : uint8_t { kWindow, kSecond };
  static std::vector<std::string> OrderOf(Round round);

 private:
  static constexpr absl::Duration kRingPeriod = absl::Milliseconds(20);
  static constexpr absl::Duration kQuietPeriod = absl::Milliseconds(100);
  static constexpr absl::Duration kQueuesPeriod = absl::Seconds(3);

  using Nic = NicState;

  explicit Agent(AgentOptions options);
  absl::Status Open();
  const probe::Hops* HopsOf(uint32_t pair, uint8_t slot) const;  // nullptr: no path there, or not traced

  // start.cc, open_*.cc
  absl::Status OpenDataplane();
  absl::Status OpenNics();
  void WriteControl();
  void BeginSession(uint32_t pinned);
  void RenewSession();
  void TellOfLease();
  absl::Status OpenProbes();
  absl::Status OpenVerbs();
  absl::Status ConfigurePairs();

  // pairs.cc
  std::vector<ProbedNic> ProbedNics() const;
  absl::Status TakePeers(PeerPlan plan);
  absl::Status RemovePeersBesides(const std::vector<probe::PairSpec>& wanted);
  void ForgetPair(uint32_t index);
  void AddPair(uint32_t index);
  void ScheduleTick();

  // reload.cc
  struct Fresh {
    config::Config config;  // that will be in force
    probe::KeyRing keys;
    PeerPlan peers;
    std::vector<config::Change> changes;
  };
  absl::StatusOr<Fresh> CheckConfig(const config::Config& fresh);
  absl::Status TakeConfig(Fresh fresh);
  void TakeRules(const config::ProbeConfig& probed);
  void WriteKnobs();
  void TakeName(const std::string& in_peer_files);
  absl::Status OpenSources();
  absl::Status OpenRings();
  absl::Status OpenEvents();
  absl::Status StartTimers();

  // intake.cc: records of the rings
  void OnProbeRecord(absl::Span<const uint8_t> record);
  void OnEventRecord(absl::Span<const uint8_t> record);
  void OnMessageRecord(absl::Span<const uint8_t> record);
  void OnMadeMove(const cw_ev_move& move);
  void ReadProbes();
  void ConsumeRings();  // and what follows from the probes for the clocks, which may be a round of fleet time
  void SendMessages();

  PairState* FindPair(uint32_t index) const { return FindIn(pairs_, index); }

  // rounds.cc
  struct Step;
  static absl::Span<const Step> StepsOf(Round round);
  void Run(Round round);

  // upkeep.cc: what is looked after in every window, or second
  void KeepPace(int64_t now_ns);
  void SetPace(bool busy);
  void LookAtPairs(int64_t now_ns);
  void ReadMeters(int64_t now_ns);
  void CountSent(PairState& pair, int64_t now_ns);

  // rdma_nics.cc: RDMA devices, what they are and what happens to them
  absl::Status OpenRdmaWatch();

  // labels.cc: names of jobs for processes that give none
  absl::StatusOr<api::v1::ActionReply> DoSetLabel(const api::Caller& caller, const api::v1::LabelRequest& request);

  void TellOfEventsFile();
  absl::Status OpenNicFailover();
  absl::Status OpenCarriers();
  void StartAnew(telemetry::Event why);
  void OpenPaths();
  void OpenNews();
  void OpenRecovery();
  void OpenScopes();
  void OpenBalance();
  void OpenMovers();
  void OpenFlows();
  void OpenPlacer();
  void OpenSteering();
  absl::Status AdoptWishes();
  std::function<absl::Status(uint32_t ifindex, absl::Span<const uint8_t> packet)> OpenInjector();
  void OpenClocks();
  void OpenInsight();
  void OpenViews();
  void Locate(const rdma::QpInfo& qp, api::v1::CollectiveQp& out);

  void TellCounts(const CounterSink& add) const;  // view.cc

  void Log(telemetry::Event event);
  // The rule is made for windows in which senders' rates settle; shorter configured windows are summed up to one tick.
  absl::Duration Window() const { return std::max(options_.config.steering.contention_window, absl::Milliseconds(10)); }
  int64_t NowNs() const { return clock_->NowNs(); }
  int64_t MonotonicNs() const { return monotonic_.NowNs(); }

  AgentOptions options_;
  Vitals vitals_;
  MonotonicClock monotonic_;
  Journal journal_;
  ConfigInForce config_in_force_{journal_};
  SessionKeeper session_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<dataplane::Dataplane> dataplane_;
  std::unique_ptr<FlowRecords> records_;
  std::shared_ptr<LineClock> clock_;  // local time, as the BPF programs read it; the prober's thread keeps it
  std::atomic<bool> slew_posted_{false};
  std::unique_ptr<dataplane::Jiffies> jiffies_;
  NicTable nics_;
  PeerNames peer_names_;

  std::unique_ptr<probe::PairStore> store_;
  GroupKeys keys_;
  std::unique_ptr<VerbsProbes> verbs_;
  std::unique_ptr<probe::Engine> engine_;
  std::unique_ptr<PeerMail> mail_;
  PairTable pairs_;
  std::unique_ptr<Totals> totals_;
  std::unique_ptr<LinkFlaps> link_flaps_;
  int64_t engine_tick_ns_ = INT64_MAX;

  std::unique_ptr<maps::RingReader> probe_reader_, event_reader_, message_reader_;
  std::unique_ptr<rdma::InprocServer> inproc_;
  rdma::QpRegistry qps_;
  std::unique_ptr<UnseenFlows> unseen_;
  std::unique_ptr<NativePorts> natives_;
  std::unique_ptr<FlowReader> flow_reader_;
  std::unique_ptr<FlowEnds> flow_ends_;
  std::unique_ptr<KernelQps> kernel_qps_;
  std::unique_ptr<QpMoments> qp_moments_;
  FlowBook flows_;
  std::unique_ptr<FlowSamples> samples_;
  std::unique_ptr<NicClocks> nic_clocks_;
  std::unique_ptr<ClockKeeper> clocks_;
  std::unique_ptr<control::ContentionState> contention_;
  std::unique_ptr<Breaker> breaker_;
  std::unique_ptr<BalanceMoves> balance_;
  std::unique_ptr<ContentionWindow> window_;
  std::unique_ptr<PeerWatch> peer_watch_;
  bool busy_ = true;                         // there are flows to look after, or were lately
  int64_t busy_ns_ = 0;                      // monotonic; when there were flows or young clock lines last, or the start
  int ring_timer_ = -1, window_timer_ = -1;  // of loop_

  std::unique_ptr<CarryKernel> carry_kernel_;
  std::unique_ptr<NicFailover> nic_failover_;
  PathLostSubscribers path_lost_;
  std::unique_ptr<Damping> damping_;
  std::unique_ptr<PathNews> path_news_;
  std::unique_ptr<FabricNews> fabric_news_;
  std::unique_ptr<ProbeNews> probe_news_;
  std::unique_ptr<MoveNews> move_news_;
  std::unique_ptr<Losses> losses_;
  std::unique_ptr<KernelMover> kernel_mover_;
  std::unique_ptr<OwnerMover> owner_mover_;
  std::unique_ptr<Placer> placer_;
  std::unique_ptr<Steering> steering_;
  std::unique_ptr<Draining> draining_;
  std::unique_ptr<Returns> returns_, owner_returns_;
  std::unique_ptr<Tails> tails_;
  std::unique_ptr<Rerolls> rerolls_;
  std::unique_ptr<Carriers> carriers_;
  std::unique_ptr<dataplane::LinkNews> link_news_;
  std::unique_ptr<Modes> modes_;
  std::unique_ptr<Scopes> scopes_;
  std::unique_ptr<Lease> lease_;
  std::unique_ptr<DryRun> dry_run_;
  class Drains drains_;

  Deadlines deadlines_;
  bool starts_anew_ = false;
  bool file_error_logged_ = false;

  std::unique_ptr<LabelBook> labels_;
  std::unique_ptr<Causes> causes_;
  std::unique_ptr<Gaps> gaps_;
  std::unique_ptr<Jobs> jobs_;
  std::unique_ptr<Chunks> chunks_;
  std::unique_ptr<FlowsView> flows_view_;
  std::unique_ptr<PathsView> paths_view_;
  std::unique_ptr<StatusView> status_view_;
  std::unique_ptr<WhyView> why_view_;
  std::unique_ptr<RingRecorder> ring_;     // null: no ring
  int64_t ring_from_ns_ = 0;               // ns since 1970
  std::unique_ptr<RdmaWatch> rdma_watch_;  // a thread of its own, which posts to loop_

  std::unique_ptr<api::Server> server_;  // last: ends before what it serves
};

}  // namespace cw::agent
