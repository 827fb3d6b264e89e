// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/views/paths_view.h"

#include <algorithm>

#include "userspace/agent/fleet_clock/clock_view.h"
#include "userspace/agent/views/path_seen.h"
#include "userspace/agent/views/view_words.h"
#include "userspace/telemetry/sketch.h"

namespace cw::agent {
namespace {

double AgoS(int64_t now_ns, int64_t then_ns) { return then_ns == 0 ? -1 : static_cast<double>(now_ns - then_ns) / 1e9; }

bool IsPaused(const SlotState& slot) {
  return slot.silence && slot.silence->watch.verdict() == control::Silence::kPaused;
}

constexpr uint64_t kEnoughProbes = 20;

// late: what is missing is missing for want of a reader.
void FillWindow(const telemetry::PathDelay& forward, const telemetry::PathDelay& reverse, int64_t now_ns, int seconds,
                bool late, v1::PathWindow* out) {
  const telemetry::DelayWindow ahead = forward.Window(now_ns, seconds);
  const telemetry::DelayWindow back = reverse.Window(now_ns, seconds);
  out->set_seconds(static_cast<uint32_t>(seconds));
  out->set_sent(ahead.sent);
  out->set_known(ahead.known);
  out->set_lost(ahead.lost);
  out->set_loss(ahead.Loss());
  out->set_agent_late(late && ahead.sent >= kEnoughProbes && 2 * ahead.known < ahead.sent);
  FillDelay(ahead.owd, out->mutable_forward());
  FillDelay(back.owd, out->mutable_reverse());
  FillDelay(ahead.queueing, out->mutable_queueing_forward());
  FillDelay(back.queueing, out->mutable_queueing_reverse());
  out->set_jitter_forward_ns(ahead.jitter_ns);
  out->set_jitter_reverse_ns(back.jitter_ns);
}

}  // namespace

PathsView::PathsView(const PairTable& pairs, const NicTable& nics, const FlowBook& flows, const probe::Mesh& mesh,
                     probe::PairStore& store, const LinkFlaps& links, const Clock& local, const Clock& monotonic,
                     Asks asks)
    : pairs_(pairs),
      nics_(nics),
      flows_(flows),
      mesh_(mesh),
      store_(store),
      links_(links),
      local_(local),
      monotonic_(monotonic),
      asks_(std::move(asks)) {}

// The worst of all pairs: steering rests on ports alone choosing the path.
v1::FabricHashing PathsView::Hashing() const {
  probe::Hashing worst = probe::Hashing::kUnknown;
  const auto rank = [](probe::Hashing hashing) {
    switch (hashing) {
      case probe::Hashing::kUnknown:
        return 0;
      case probe::Hashing::kSinglePath:
        return 1;
      case probe::Hashing::kPorts:
        return 2;
      case probe::Hashing::kTtl:
        return 3;
      case probe::Hashing::kQpn:
        return 4;
      case probe::Hashing::kSprayed:
        return 5;
    }
    return 0;
  };
  for (const auto& [index, pair] : pairs_) {
    const probe::Discovery* discovery = asks_.discovery(index);
    if (discovery != nullptr && rank(discovery->hashing()) > rank(worst)) worst = discovery->hashing();
  }
  return ToApi(worst);
}

void PathsView::Count(const PairState& pair, v1::PeerStatus& peer, v1::PathCounts& counts) const {
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (mesh_.slots(pair.index).port(s) == 0) continue;
    peer.set_paths(peer.paths() + 1);
    if (const uint32_t arrives = pair.slot[s].size.arrives(); arrives > 0) {
      const uint32_t least = counts.least_largest_arrives();
      counts.set_size_limited(counts.size_limited() + 1);
      counts.set_least_largest_arrives(least == 0 ? arrives : std::min(least, arrives));
    }
    switch (StateIn(pair.path_silence, s, StateOf(probe::Load(store_.At(pair.index)->slot[s].state)),
                    pair.ClassStands(monotonic_.NowNs()))) {
      case v1::PATH_STATE_NEW:
        counts.set_new_(counts.new_() + 1);
        break;
      case v1::PATH_STATE_DEAD:
        IsPaused(pair.slot[s]) ? counts.set_paused(counts.paused() + 1) : counts.set_dead(counts.dead() + 1);
        break;
      case v1::PATH_STATE_UP:
        counts.set_up(counts.up() + 1);
        peer.set_paths_live(peer.paths_live() + 1);
        break;
      case v1::PATH_STATE_SUSPECT:
        counts.set_suspect(counts.suspect() + 1);
        peer.set_paths_live(peer.paths_live() + 1);
        break;
      case v1::PATH_STATE_SILENT:
        if (!pair.PeerIsBlind(monotonic_.NowNs())) counts.set_silent(counts.silent() + 1);
        break;
      default:
        break;
    }
  }
}

v1::Path PathsView::Path(PairState& pair, uint8_t s) const {
  const int64_t now_ns = monotonic_.NowNs();
  const cw_slot& shared = store_.At(pair.index)->slot[s];
  const probe::SlotTable& slots = mesh_.slots(pair.index);
  const probe::Discovery* discovery = asks_.discovery(pair.index);
  const uint16_t port = slots.port(s);
  SlotState& state = pair.slot[s];
  v1::Path path;
  path.set_slot(s);
  path.set_reverse_slot(s);
  path.set_udp_port(port);
  if (const probe::Hops* hops = discovery->HopsOf(port); hops != nullptr) {
    for (const Addr& hop : *hops) path.add_hops(hop.is_zero() ? "*" : hop.ToString());
  }
  path.set_state(StateIn(pair.path_silence, s, StateOf(probe::Load(shared.state)), pair.ClassStands(now_ns)));
  path.set_silent_s(static_cast<double>(pair.path_silence.SilentNs(s)) / 1e9);
  if (path.state() == v1::PATH_STATE_DEAD && IsPaused(state)) path.set_state(v1::PATH_STATE_PAUSED);
  path.set_assignable(slots.is_path(s) && (pair.blocked >> s & 1) == 0);
  path.set_lossy((LossySlots(pair, now_ns) >> s & 1) != 0);
  path.set_damped((pair.damped >> s & 1) != 0);
  path.set_drained((pair.drained >> s & 1) != 0);
  path.set_native(!slots.is_path(s));
  for (const probe::Path& known : discovery->table().paths) {
    if (known.port == port) path.set_age_s(AgoS(local_.NowNs(), known.verified_ns));
  }
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.pair == pair.index && flow.SlotOfPackets(asks_.acts()) == s) path.set_flows(path.flows() + 1);
  }
  if (state.forward.BaseNs() != INT64_MAX) path.set_base_forward_ns(static_cast<double>(state.forward.BaseNs()));
  if (state.reverse.BaseNs() != INT64_MAX) path.set_base_reverse_ns(static_cast<double>(state.reverse.BaseNs()));
  path.set_longer_forward_ns(pair.clock_paths.LongerThereNs(s));
  path.set_longer_reverse_ns(pair.clock_paths.LongerBackNs(s));
  path.set_clock_left_out_forward((pair.clock_paths.choice().there_left_out >> s & 1) != 0);
  path.set_clock_left_out_reverse((pair.clock_paths.choice().back_left_out >> s & 1) != 0);
  for (int seconds : telemetry::kWindowsS)
    FillWindow(state.forward, state.reverse, now_ns, seconds, path.state() == v1::PATH_STATE_UP && path.silent_s() == 0,
               path.add_windows());
  path.set_largest_arrives(state.size.arrives());
  path.set_deaths(probe::Load(shared.deaths));
  path.set_misses(probe::Load(shared.misses));
  path.set_last_change_ago_s(AgoS(local_.NowNs(), static_cast<int64_t>(probe::Load(shared.changed_ns))));
  return path;
}

v1::Pair PathsView::Pair(PairState& pair) const {
  const int64_t now_ns = monotonic_.NowNs();
  v1::Pair out;
  const probe::Discovery* discovery = asks_.discovery(pair.index);
  out.set_index(pair.index);
  for (const NicState& nic : nics_) {
    if (nic.ifindex == pair.ifindex) out.set_nic(nic.config.name);
  }
  out.set_local_address(pair.key.local.ToString());
  out.set_peer(pair.peer);
  out.set_remote_address(pair.key.remote.ToString());
  out.set_active(pair.active);
  out.set_interval_s(static_cast<double>(asks_.interval_ns(pair.index)) / 1e9);
  out.set_last_reply_ago_s(AgoS(now_ns, pair.last_reply_ns));
  out.set_dscp(mesh_.dscp(pair.index));
  out.set_dscp_from(asks_.dscp_configured() ? "configured" : pair.flow_class.dscp() ? "flows" : "default");
  bool known = true;
  for (const probe::Path& path : discovery->table().paths) known = known && path.known;
  out.set_table(!pair.table_seen ? "discovering" : !discovery->table().valid ? "invalid" : known ? "valid" : "unknown");
  out.set_hashing(ToApi(discovery->hashing()));
  const int64_t local_ns = local_.NowNs();
  *out.mutable_clock() = agent::ToApi(pair.EstimateAt(local_ns), local_ns);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (mesh_.slots(pair.index).port(s) != 0) *out.add_paths() = Path(pair, s);
  }
  return out;
}

v1::PathsReply PathsView::All(const v1::PathsRequest& request) const {
  v1::PathsReply reply;
  for (auto& [index, pair] : pairs_) {
    if (!request.remote().empty() && request.remote() != pair->peer && request.remote() != pair->key.remote.ToString())
      continue;
    *reply.add_pairs() = Pair(*pair);
  }
  return reply;
}

LinkPast PathsView::PastOfLinks() const {
  const int64_t now_ns = monotonic_.NowNs();
  LinkPast past{.by_end = links_.book().Counts(now_ns), .own = {}, .gone = {}};
  for (const control::GoneLink& link : links_.gone().All(now_ns))
    past.gone.push_back({link, 1e-9 * static_cast<double>(now_ns - link.left_ns)});
  for (const NicState& nic : nics_) {
    if (const auto own = past.by_end.find(nic.config.name); own != past.by_end.end())
      past.own[nic.address.ToString()] = own->second;
  }
  return past;
}

std::vector<uplink::PathSeen> PathsView::Seen(int seconds) const {
  std::vector<uplink::PathSeen> seen;
  const int64_t now_ns = monotonic_.NowNs();
  for (const auto& [index, pair] : pairs_) {
    // Without our programs nothing is known of its paths: neither that they live nor that they are dead.
    const auto nic =
        std::find_if(nics_.begin(), nics_.end(), [&](const auto& n) { return n.ifindex == pair->ifindex; });
    if (nic != nics_.end() && nic->attached && !nic->has_programs()) continue;
    AddSeen(*pair, now_ns, seconds, seen);
  }
  return seen;
}

void PathsView::AddSeen(PairState& pair, int64_t now_ns, int seconds, std::vector<uplink::PathSeen>& out) const {
  const probe::SlotTable& slots = mesh_.slots(pair.index);
  const probe::Discovery* discovery = asks_.discovery(pair.index);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const uint16_t port = slots.port(s);
    if (port == 0) continue;
    SlotState& slot = pair.slot[s];
    const cwfabric::v1::PathState state = StateOf(probe::Load(store_.At(pair.index)->slot[s].state));
    const probe::Hops* hops = discovery == nullptr ? nullptr : discovery->HopsOf(port);
    const probe::Hops* cut = discovery == nullptr ? nullptr : discovery->CutOf(port);
    // A path that lives lost an answer of a switch. What ends early of one that does not is where it is cut.
    if (state != cwfabric::v1::PATH_STATE_DEAD && pair.path_silence.SilentNs(s) == 0) cut = nullptr;
    AppendSeen({.local = pair.key.local,
                .remote = pair.key.remote,
                .peer = pair.peer,
                .udp_port = port,
                .pair = pair.index,
                .slot = s},
               {.silence = pair.path_silence,
                .forward = slot.forward,
                .reverse = slot.reverse,
                .state = state,
                .revives = probe::Load(store_.At(pair.index)->slot[s].revive) > 0,
                .held_up = IsPaused(slot) || (slot.silence && slot.silence->watch.ClassStands(now_ns)),
                .pair_stands = pair.ClassStands(now_ns),
                .hops = cut != nullptr ? cut : hops,
                .silence_behind = cut == nullptr && hops != nullptr && discovery->EndsAtLastSwitch(port),
                .end_proof = slot.end_proof,
                .largest_bytes = slot.size.arrives(),
                .full_size = slot.size.arrives() == 0 && slot.size.passed_ns() > 0},
               now_ns, seconds, out);
  }
}

}  // namespace cw::agent
