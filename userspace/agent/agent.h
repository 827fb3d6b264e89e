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
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
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
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pace.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/parts.h"
#include "userspace/agent/paths/path_lost.h"
#include "userspace/agent/peer_names.h"
#include "userspace/agent/vitals.h"
#include "userspace/api/agent_api.h"
#include "userspace/api/server.h"
#include "userspace/config/config.h"
#include "userspace/control/contention.h"
#include "userspace/dataplane/dataplane.h"
#include "userspace/dataplane/jiffies.h"
#include "userspace/dataplane/presence.h"
#include "userspace/metrics/path_totals.h"
#include "userspace/model/clock.h"
#include "userspace/probe/engine.h"
#include "userspace/rdma/inproc_server.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::dataplane {
class LinkNews;
}
namespace cw::uplink {
struct FlowSeen;
struct PathSeen;
struct SecondSeen;
}  // namespace cw::uplink

namespace cw::agent {

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
  absl::Status ReopenEvents();  // their file may have been moved away, as logrotate does

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
  // Grows when paths begin or end to be silent.
  uint64_t silence_changes() const { return silence_changes_.load(std::memory_order_relaxed); }
  // Of the probes' ring, since it was made.
  struct ProbeRecords {
    uint64_t read = 0, lost = 0;
    int64_t late_ns = 0;  // in which the agent got no processor, or was stopped
  };
  ProbeRecords probe_records() const { return {records_read_.load(), records_lost_.load(), late_ns_.load()}; }
  const std::string& host_name() const { return vitals_.host_name; }  // as of Start
  std::map<std::string, uint32_t> Ifindexes() const;                  // by the NIC's name; known once it has started

  // Whose work follows whose.
  enum class Round : uint8_t {
    kRings,   // what was measured is read
    kMail,    // what is sent to peers
    kWindow,  // of decisions
    kSecond,
  };
  static std::vector<std::string> OrderOf(Round round);

 private:
  explicit Agent(AgentOptions options);
  absl::Status Open();
  // start.cc, open_*.cc: each makes some parts, those first that others need
  absl::Status OpenDataplane();
  void OpenControl();
  void ShowPresence();
  absl::Status OpenNics();
  absl::Status OpenVerbs();
  absl::Status OpenProbes();
  void OpenPaths();
  void OpenScopes();
  void OpenNews();
  void OpenBalance();
  void OpenMovers();
  void OpenFlows();
  void OpenPlacer();
  void OpenSteering();
  void OpenRecovery();
  std::function<absl::Status(uint32_t ifindex, absl::Span<const uint8_t> packet)> OpenInjector();
  absl::Status OpenPairs();
  void OpenClocks();
  void OpenInsight();
  void OpenViews();
  absl::StatusOr<dataplane::AttachInfo> AttachTo(const NicState& nic);
  absl::Status OpenNicFailover();
  absl::Status OpenCarriers();
  absl::Status OpenHooks();
  absl::Status OpenAddresses();
  absl::Status OpenSources();
  absl::Status OpenRdmaWatch();
  absl::Status OpenIntake();
  absl::Status AdoptWishes();
  absl::Status StartTimers();
  void OpenReloader();

  struct Step;  // rounds.cc
  static absl::Span<const Step> StepsOf(Round round);
  void Run(Round round);

  void StartAnew(telemetry::Event why);
  void ReadProbes();
  const probe::Hops* HopsOf(uint32_t pair, uint8_t slot) const;  // nullptr: no path there, or not traced
  void TellCounts(const CounterSink& add) const;                 // view.cc
  void Log(telemetry::Event event) { journal_.Log(std::move(event)); }
  // The rule is made for windows in which senders' rates settle; shorter configured windows are summed up to one tick.
  absl::Duration Window() const { return std::max(options_.config.steering.contention_window, absl::Milliseconds(10)); }
  int64_t NowNs() const { return clock_->NowNs(); }
  int64_t MonotonicNs() const { return monotonic_.NowNs(); }

  AgentOptions options_;
  Vitals vitals_;
  MonotonicClock monotonic_;
  Journal journal_;
  ConfigInForce config_in_force_{journal_};
  std::unique_ptr<EventsFile> events_file_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<dataplane::Dataplane> dataplane_;
  std::unique_ptr<dataplane::Presence> presence_;
  std::unique_ptr<FlowRecords> records_;
  std::shared_ptr<LineClock> clock_;  // local time, as the BPF programs read it; the prober's thread keeps it
  std::atomic<bool> slew_posted_{false};
  std::unique_ptr<dataplane::Jiffies> jiffies_;
  std::unique_ptr<ControlRecord> control_;
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
  std::unique_ptr<EngineTicks> ticks_;
  std::unique_ptr<Greeting> greeting_;
  std::unique_ptr<PairKeeper> pair_keeper_;

  std::unique_ptr<Intake> intake_;
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
  std::atomic<uint64_t> silence_changes_ = 0, records_read_ = 0, records_lost_ = 0;
  std::atomic<int64_t> late_ns_ = 0;
  int64_t window_ns_ = 0;  // monotonic: when the last one began
  Pace pace_;

  std::unique_ptr<CarryKernel> carry_kernel_;
  std::unique_ptr<NicFailover> nic_failover_;
  PathLostSubscribers path_lost_;
  std::unique_ptr<Damping> damping_;
  std::unique_ptr<PathNews> path_news_;
  std::unique_ptr<FabricNews> fabric_news_;
  std::unique_ptr<ProbeNews> probe_news_;
  std::unique_ptr<MoveNews> move_news_;
  std::unique_ptr<Losses> losses_;
  std::unique_ptr<SizeCheck> sizes_;
  std::unique_ptr<KernelMover> kernel_mover_;
  std::unique_ptr<OwnerMover> owner_mover_;
  std::unique_ptr<Placer> placer_;
  std::unique_ptr<Steering> steering_;
  std::unique_ptr<Draining> draining_;
  std::unique_ptr<Returns> returns_, owner_returns_;
  std::unique_ptr<Tails> tails_;
  std::unique_ptr<Rerolls> rerolls_;
  std::unique_ptr<Carriers> carriers_;
  std::unique_ptr<Hooks> hooks_;
  std::unique_ptr<BlindNotes> blind_notes_;
  std::unique_ptr<Addresses> addresses_;
  std::unique_ptr<dataplane::LinkNews> link_news_;
  std::unique_ptr<AddressWatch> address_watch_;
  std::unique_ptr<Modes> modes_;
  std::unique_ptr<Scopes> scopes_;
  std::unique_ptr<Lease> lease_;
  std::unique_ptr<DryRun> dry_run_;
  class Drains drains_;

  Deadlines deadlines_;
  bool ran_ = false, starts_anew_ = false;

  std::unique_ptr<LabelBook> labels_;
  std::unique_ptr<Causes> causes_;
  std::unique_ptr<Gaps> gaps_;
  std::unique_ptr<Jobs> jobs_;
  std::unique_ptr<Chunks> chunks_;
  std::unique_ptr<FlowsView> flows_view_;
  std::unique_ptr<PathsView> paths_view_;
  std::unique_ptr<StatusView> status_view_;
  std::unique_ptr<WhyView> why_view_;
  std::unique_ptr<RingTap> ring_;
  std::unique_ptr<Reloader> reloader_;
  std::unique_ptr<RdmaWatch> rdma_watch_;  // a thread of its own, which posts to loop_

  std::unique_ptr<api::Server> server_;  // last: ends before what it serves
};

}  // namespace cw::agent
