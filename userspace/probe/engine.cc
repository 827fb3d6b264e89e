// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/engine.h"

#include <algorithm>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "spdlog/spdlog.h"

namespace cw::probe {
namespace {

constexpr int kIcmpPerWake = 128;
constexpr int64_t kQueueRetryNs = 1'000'000;

}  // namespace

Engine::Engine(const EngineOptions& options, PairStore* store, const KeyRing* keys, EngineCallbacks callbacks)
    : callbacks_(std::move(callbacks)), transport_of_(options.transport_of), mesh_(store, keys, options.mesh) {
  paths_ = std::make_unique<PathMonitor>(
      options.paths, [this](uint32_t pair, const TraceProbe& t) { SendTrace(pair, t); },
      [this](uint32_t pair, const DiscoveryEvent& e) { OnDiscovery(pair, e); });
  messages_ = std::make_unique<MessageChannel>(&mesh_, [this](uint32_t pair, absl::Span<const uint8_t> packet) {
    auto transport = TransportOf(mesh_.spec(pair).local_ifindex);
    return transport.ok() ? (*transport)->Send(packet) : transport.status();
  });
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, PairStore* store,
                                                       const KeyRing* keys, EngineCallbacks callbacks) {
  std::unique_ptr<Engine> engine(new Engine(options, store, keys, std::move(callbacks)));
  auto icmp = IcmpSocket::Open();
  if (!icmp.ok()) return icmp.status();
  engine->icmp_ = *std::move(icmp);
  auto prober = Prober::Start(options.prober);
  if (!prober.ok()) return prober.status();
  engine->prober_ = *std::move(prober);
  return engine;
}

absl::StatusOr<std::shared_ptr<RawSocket>> Engine::SocketOf(int ifindex) {
  if (auto it = sockets_.find(ifindex); it != sockets_.end()) return it->second;
  auto socket = RawSocket::Open(ifindex);
  if (!socket.ok()) return socket.status();
  return sockets_[ifindex] = *std::move(socket);
}

absl::StatusOr<std::shared_ptr<Transport>> Engine::TransportOf(int ifindex) {
  if (transport_of_) {
    if (std::shared_ptr<Transport> other = transport_of_(ifindex)) return other;
  }
  return SocketOf(ifindex);
}

absl::StatusOr<ConfigureResult> Engine::Configure(const std::vector<PairSpec>& specs) {
  for (const PairSpec& s : specs) {  // fail before anything changes
    if (auto socket = SocketOf(s.local_ifindex); !socket.ok()) return socket.status();
  }
  // The prober lets go of a pair before its record is cleared or used for another.
  absl::flat_hash_map<PairKey, PairSpec> wanted;
  for (const PairSpec& s : specs) wanted.emplace(s.key(), s);
  std::set<uint32_t> changed;
  for (uint32_t pair : mesh_.Pairs()) {
    const auto it = wanted.find(mesh_.spec(pair).key());
    if (it != wanted.end() && it->second == mesh_.spec(pair)) continue;
    prober_->RemovePair(pair);
    if (it != wanted.end()) {
      changed.insert(pair);
      continue;
    }
    paths_->RemovePair(pair);
    messages_->ForgetPair(pair);
  }
  auto result = mesh_.Configure(specs);
  if (result.ok()) {
    changed.insert(result->added.begin(), result->added.end());
    changed.insert(result->adopted.begin(), result->adopted.end());
  }
  for (uint32_t pair : changed) {
    if (absl::Status s = StartPair(pair); !s.ok()) return s;
  }
  return result;
}

absl::Status Engine::StartPair(uint32_t pair) {
  const PairSpec& spec = mesh_.spec(pair);
  auto transport = TransportOf(spec.local_ifindex);
  if (!transport.ok()) return transport.status();
  const absl::Span<const uint16_t> ports = (*transport)->ports();
  std::vector<uint16_t> preferred;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const uint16_t port = mesh_.slots(pair).port(s);
    const bool has_it = ports.empty() || std::find(ports.begin(), ports.end(), port) != ports.end();
    if (mesh_.slots(pair).is_path(s) && has_it) preferred.push_back(port);
  }
  paths_->RemovePair(pair);
  paths_->AddPair(pair, spec.key(), spec.local_ifindex, preferred, {ports.begin(), ports.end()});
  for (uint16_t port : mesh_.slots(pair).NativePorts()) paths_->TracePort(pair, port);
  return Replan(pair);
}

absl::Status Engine::KeysChanged() {
  if (absl::Status s = mesh_.RewriteKeys(); !s.ok()) return s;
  return ReplanAll();
}

absl::Status Engine::SetSession(uint32_t session) {
  mesh_.SetSession(session);
  return ReplanAll();
}

absl::Status Engine::ReplanAll() {
  for (uint32_t pair : mesh_.Pairs()) {
    if (absl::Status s = Replan(pair); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Engine::Replan(uint32_t pair) {
  auto slots = mesh_.Plan(pair);
  if (!slots.ok()) return slots.status();
  auto transport = TransportOf(mesh_.spec(pair).local_ifindex);
  if (!transport.ok()) return transport.status();
  prober_->SetPlan({pair, mesh_.shared(pair), *std::move(transport), *std::move(slots)});
  return absl::OkStatus();
}

void Engine::SetDscp(uint32_t pair, uint8_t dscp) {
  if (!mesh_.Has(pair) || mesh_.dscp(pair) == dscp) return;
  mesh_.SetDscp(pair, dscp);
  if (absl::Status s = Replan(pair); !s.ok()) spdlog::error("pair {}: {}", pair, s.ToString());
}

void Engine::Apply(uint32_t pair, const SlotUpdate& update) {
  if (!update.slots.empty()) {
    if (absl::Status s = Replan(pair); !s.ok()) spdlog::error("pair {}: {}", pair, s.ToString());
  }
  if (!update.empty() && callbacks_.on_slots) callbacks_.on_slots(pair, update);
}

void Engine::SendTrace(uint32_t pair, const TraceProbe& probe) {
  PacketSpec spec = mesh_.Packet(pair, 0, probe.port);  // a trace belongs to no slot; any valid number does
  spec.ttl = probe.ttl;
  spec.ip_id = probe.ip_id;
  spec.qpn = probe.qpn;
  auto packet = ProbeTemplate::Make(CW_PROBE_TRACE, spec);
  auto socket = SocketOf(mesh_.spec(pair).local_ifindex);
  if (!packet.ok() || !socket.ok()) return;  // as if it had been lost: it is tried again
  packet->SetRound(probe.ip_id);
  (void)(*socket)->Send(packet->bytes());
}

FoldFn Engine::FoldOf(uint32_t pair) const {
  return [this, pair](uint16_t port) -> std::optional<uint16_t> {
    const Discovery* d = paths_->Find(pair);
    // While ports are dealt out anew, a native port is probed itself as far as there are slots.
    return d != nullptr && d->table().valid && !d->InMotion() ? d->Fold(port) : std::nullopt;
  };
}

void Engine::OnDiscovery(uint32_t pair, const DiscoveryEvent& event) {
  if (!mesh_.Has(pair)) return;
  switch (event.kind) {
    case DiscoveryEvent::Kind::kInvalid:
      spdlog::warn("{} to {}: udp-port {} took [{}], now [{}]: paths are discovered anew",
                   mesh_.spec(pair).local.ToString(), mesh_.spec(pair).peer, event.port, HopsToString(event.before),
                   HopsToString(event.after));
      Apply(pair, mesh_.slots(pair).RefoldNatives(FoldOf(pair), now_ns_));
      if (callbacks_.on_invalid) callbacks_.on_invalid(pair, event);
      return;
    case DiscoveryEvent::Kind::kCalm:
      Apply(pair, mesh_.slots(pair).RefoldNatives(FoldOf(pair), now_ns_));
      return;
    case DiscoveryEvent::Kind::kTraced:
      Apply(pair, mesh_.slots(pair).RefoldNative(event.port, FoldOf(pair), now_ns_));
      return;
    case DiscoveryEvent::Kind::kHashing:
      if (callbacks_.on_hashing) callbacks_.on_hashing(pair, paths_->Find(pair)->hashing());
      return;
    case DiscoveryEvent::Kind::kCut:
      if (callbacks_.on_cut) callbacks_.on_cut();
      return;
    case DiscoveryEvent::Kind::kTable:
      break;
  }
  const PathTable& table = paths_->Find(pair)->table();
  std::vector<uint16_t> ports;
  for (const Path& p : table.paths) ports.push_back(p.port);
  Apply(pair, mesh_.slots(pair).SetPaths(ports, FoldOf(pair), now_ns_));
  if (callbacks_.on_table) callbacks_.on_table(pair, table);
}

void Engine::OnIcmpReadable(int64_t now_ns) {
  now_ns_ = now_ns;
  icmp_->Read(kIcmpPerWake, [&](const TraceAnswer& a) { paths_->OnAnswer(a, now_ns); });
}

void Engine::Tick(int64_t now_ns) {
  now_ns_ = now_ns;
  OnIcmpReadable(now_ns);
  paths_->Tick(now_ns);
  messages_->Flush();
}

int64_t Engine::NextTickNs(int64_t now_ns) const {
  const int64_t next = paths_->NextTickNs(now_ns);
  return messages_->queue_empty() ? next : std::min(next, now_ns + kQueueRetryNs);
}

uint8_t Engine::EnsureNative(uint32_t pair, uint16_t port, int64_t now_ns, uint32_t label) {
  if (!mesh_.Has(pair) || port == 0) return CW_SLOT_NONE;
  mesh_.SetNativeLabel(pair, port, label);
  const bool known = mesh_.slots(pair).NativeSlot(port).has_value();
  SlotUpdate update;
  const uint8_t slot = mesh_.slots(pair).EnsureNative(port, FoldOf(pair), now_ns, &update);
  if (!known) paths_->TracePort(pair, port);
  Apply(pair, update);
  return slot;
}

void Engine::ReleaseNative(uint32_t pair, uint16_t port, int64_t now_ns) {
  if (!mesh_.Has(pair)) return;
  paths_->ForgetPort(pair, port);
  mesh_.ForgetNativeLabel(pair, port);
  Apply(pair, mesh_.slots(pair).ReleaseNative(port, FoldOf(pair), now_ns));
}

void Engine::SetBlocked(uint32_t pair, uint16_t slot_mask) {
  if (mesh_.Has(pair)) mesh_.slots(pair).SetBlocked(slot_mask);
}

const PathTable* Engine::table(uint32_t pair) const {
  const Discovery* d = paths_->Find(pair);
  return d == nullptr ? nullptr : &d->table();
}

}  // namespace cw::probe
