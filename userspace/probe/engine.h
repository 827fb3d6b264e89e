// SPDX-License-Identifier: Apache-2.0
//
// The room's front door: mesh, prober, path discovery and messages, wired together for the agent's loop. The agent
// polls icmp_fd(), calls Tick when NextTickNs says so, tells which pairs carry data and which native ports their flows
// have, and hears about path tables, slots and native ports through the callbacks. Thread rule: one thread (the agent's
// loop); the prober runs in a thread of its own inside. Sockets and thread belong to the network namespace of the
// thread that calls Create and Configure. now_ns: the agent's local clock, always the same one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/probe/mesh.h"
#include "userspace/probe/message_channel.h"
#include "userspace/probe/path_monitor.h"
#include "userspace/probe/prober.h"
#include "userspace/probe/raw_socket.h"
#include "userspace/probe/transport.h"

namespace cw::probe {

struct EngineOptions {
  MeshOptions mesh;
  ProberOptions prober;
  PathMonitorOptions paths;
  // What probes and messages of an interface go by; none, or null for an interface: the kernel.
  std::function<std::shared_ptr<Transport>(int ifindex)> transport_of;
};

// Called from within the engine's own members. They must not call Configure.
struct EngineCallbacks {
  // The pair's path table was built or has changed; the slots follow it already.
  std::function<void(uint32_t pair, const PathTable& table)> on_table;
  // A hop differs from before: freeze moves of this pair until the next on_table.
  std::function<void(uint32_t pair, const DiscoveryEvent& event)> on_invalid;
  // What the self-test says of the pair's fabric has changed.
  std::function<void(uint32_t pair, Hashing hashing)> on_hashing;
  std::function<void()> on_cut;  // a path's newest trace ends elsewhere than the one before
  // Slots mean other ports, or native ports are represented by other slots.
  std::function<void(uint32_t pair, const SlotUpdate& update)> on_slots;
};

class Engine {
 public:
  // store and keys must outlive the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options, PairStore* store,
                                                        const KeyRing* keys, EngineCallbacks callbacks);

  // The whole wanted set of pairs (Mesh::Configure). Probing and discovery begin at once.
  absl::StatusOr<ConfigureResult> Configure(const std::vector<PairSpec>& specs);
  absl::Status KeysChanged();  // after a change of the key ring
  // All that is sent from now on is of this session, as after a restart; cw_ctl has it already.
  absl::Status SetSession(uint32_t session);

  void SetMissLimit(uint32_t limit) { mesh_.SetMissLimit(limit); }
  // How often pairs are probed, and switches asked: from now on. half_dead_factor: see MeshOptions.
  void SetPace(const CadenceOptions& cadence, uint32_t half_dead_factor, double per_switch_pps) {
    mesh_.SetPace(half_dead_factor, static_cast<uint32_t>(cadence.idle_interval_ns));
    prober_->SetCadence(cadence);
    paths_->SetRate(per_switch_pps);
  }

  int icmp_fd() const { return icmp_->fd(); }
  void OnIcmpReadable(int64_t now_ns);
  void Tick(int64_t now_ns);
  int64_t NextTickNs(int64_t now_ns) const;

  void SetActive(uint32_t pair, bool carries_data) {
    prober_->SetActive(pair, carries_data);
    paths_->SetActive(pair, carries_data);
  }
  // Its rounds come at the clock interval while it carries no data.
  void SetClock(uint32_t pair, ClockPace pace) { prober_->SetClock(pair, pace); }
  // The pair's next rounds come soon, as far as the budget goes: their delays are waited for.
  void Hurry(uint32_t pair, int64_t for_ns) { prober_->Hurry(pair, for_ns); }
  // The class that the pair's probes and messages ride in from now on, 0–63.
  void SetDscp(uint32_t pair, uint8_t dscp);
  // The slot that stands for a flow's own port, CW_SLOT_NONE: none is free. The port is traced; when its path turns out
  // to be that of another slot, on_slots tells.
  // label: the flow label that comes with the port over IPv6.
  uint8_t EnsureNative(uint32_t pair, uint16_t port, int64_t now_ns, uint32_t label = 0);
  void ReleaseNative(uint32_t pair, uint16_t port, int64_t now_ns);
  void SetBlocked(uint32_t pair, uint16_t slot_mask);  // slots that no flow shall be put on
  void RebuildPaths(uint32_t pair) { paths_->Rebuild(pair); }
  // A path of the pair died or came back: its hops are looked at again.
  void DoubtPaths(uint32_t pair, int64_t now_ns) { paths_->Doubt(pair, now_ns); }

  absl::Status SendMessage(uint32_t pair, const Body& body) { return messages_->Send(pair, body); }
  absl::Status SendMessageOn(uint32_t pair, const Body& body, uint16_t port, uint8_t dscp) {
    return messages_->SendOn(pair, body, port, dscp);
  }
  absl::Status SendPadded(uint32_t pair, const Body& body, uint16_t port, size_t bytes) {
    return messages_->SendPadded(pair, body, port, bytes);
  }
  absl::StatusOr<Body> ReceiveMessage(const cw_ev_msg& record) { return messages_->Receive(record); }

  const Mesh& mesh() const { return mesh_; }
  const PathTable* table(uint32_t pair) const;  // nullptr: no such pair
  const Discovery* discovery(uint32_t pair) const { return paths_->Find(pair); }
  ProberStats prober_stats() { return prober_->stats(); }
  int64_t IntervalNs(uint32_t pair) { return prober_->IntervalNs(pair); }
  uint32_t RoundOf(uint32_t pair) { return prober_->Round(pair); }  // the newest that was sent
  const MessageStats& message_stats() const { return messages_->stats(); }
  uint64_t traces_sent() const { return paths_->sent(); }
  uint64_t trace_answers() const { return paths_->answers(); }

 private:
  Engine(const EngineOptions& options, PairStore* store, const KeyRing* keys, EngineCallbacks callbacks);

  absl::StatusOr<std::shared_ptr<RawSocket>> SocketOf(int ifindex);
  absl::StatusOr<std::shared_ptr<Transport>> TransportOf(int ifindex);
  absl::Status StartPair(uint32_t pair);
  absl::Status Replan(uint32_t pair);
  absl::Status ReplanAll();
  void Apply(uint32_t pair, const SlotUpdate& update);
  void SendTrace(uint32_t pair, const TraceProbe& probe);
  void OnDiscovery(uint32_t pair, const DiscoveryEvent& event);
  FoldFn FoldOf(uint32_t pair) const;

  EngineCallbacks callbacks_;
  std::function<std::shared_ptr<Transport>(int ifindex)> transport_of_;
  Mesh mesh_;
  std::map<int, std::shared_ptr<RawSocket>> sockets_;  // by interface
  std::unique_ptr<IcmpSocket> icmp_;
  std::unique_ptr<PathMonitor> paths_;
  std::unique_ptr<MessageChannel> messages_;
  std::unique_ptr<Prober> prober_;
  int64_t now_ns_ = 0;
};

}  // namespace cw::probe
