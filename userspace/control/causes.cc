// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/causes.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::control {
namespace {

// Probes or packets of one direction of a path in one window.
struct Lost {
  double sent = 0;
  double lost = 0;
  double Share() const { return sent > 0 ? lost / sent : 0; }
  void Add(const Lost& more) {
    sent += more.sent;
    lost += more.lost;
  }
};

struct PathLosses {
  std::deque<Lost> forward, backward;  // newest first
  std::deque<Lost> marks;              // of probes that arrived with their ECN bits: "lost" are those with CE
  int64_t last_window = 0;
};

struct Refused {
  PairKey pair;
  // Newest first. NAKs count where its path was seen neither to queue nor to be marked; in `all`, where it did not
  // move.
  std::deque<Lost> windows, all;
  std::deque<double> gaps, missing;  // in the same windows
};

struct Told {
  CauseVerdict verdict;  // that holds
  Cause candidate = Cause::kNone;
  bool awaited = false;  // the candidate
  bool stopped = false;  // likewise
  int windows = 0;       // in a row that the candidate was found
  int64_t last_window = 0;
};

// What one direction of the paths of a pair loses.
struct Direction {
  int stopped = 0;
  int measured = 0;
  uint8_t dead_slot = kSlotNone;  // that stopped, and is dead by the kernel's verdict
  uint8_t lossy_slot = kSlotNone;
  double lossy_share = 0;
  double lossy_lost = 0;
};

struct PairFacts {
  Direction forward, backward;
  double common_queue_ns = 0;  // least of its paths
  double common_marked = 0;    // share of probes, likewise
  bool queue_known = false;
  std::vector<uint64_t> last_links;  // of its paths; receivers with common ones are behind one leaf
};

struct FlowFacts {
  double bps = 0, fair_bps = 0;
  bool slow = false;
  bool congested = false;  // packets are marked or lost, or the receiver says so: no host does that alone
  double own_ns = 0;       // of its path's queue: what all paths of this host have, where it is not congested
  double cnps_per_s = 0, rnr_per_s = 0;
  double queue_ns = 0, rtt_ns = 0;  // of its path
  bool queued = false, marked = false;
  bool by_marks = false;    // it hardly queues, and is known to be full by its probes' marks alone …
  double marked_share = 0;  // … of which this share had one
  double waiting = 0;       // packets in flight, without those that wait for others' acknowledgement
  double late_ns = 0;       // acknowledgements
  bool other_class = false;
  uint32_t largest_arrives = 0;  // on its path
  bool too_large = false;        // for its path
  bool unacknowledged = false;   // all that it sends
  Lost asked_again;              // NAKs among packets, of the last windows …
  Lost refused;                  // … and those that no queue explains
  bool lost_inside = false;      // they had arrived at the receiver's NIC
  bool overtaken = false;        // they arrived there later
  bool gaps_pending = false;
};

// None of what it has under way was acknowledged in this window.
bool Unacknowledged(const CauseFlow& flow) {
  return flow.acks_known && flow.acks == 0 && flow.looks > 0 && flow.in_flight >= 1;
}

std::string Us(double ns) { return absl::StrFormat("%.1f", ns / 1e3); }

}  // namespace

absl::string_view CauseName(Cause cause) {
  switch (cause) {
    case Cause::kNone:
      return "none";
    case Cause::kFabricContention:
      return "fabric contention";
    case Cause::kIncast:
      return "incast";
    case Cause::kSlowReceiver:
      return "slow receiver";
    case Cause::kSlowSender:
      return "slow sender";
    case Cause::kOneDirection:
      return "one direction bad";
    case Cause::kGreyLoss:
      return "grey loss";
    case Cause::kReordering:
      return "reordering";
    case Cause::kPacketSize:
      return "packet size";
    case Cause::kNoAcks:
      return "no acknowledgements";
  }
  return "none";
}

struct CauseState::Impl {
  explicit Impl(const CauseRules& r) : rules(r) {}

  void Remember(const CausePair& pair);
  Direction Losses(const CausePair& pair, bool backward, double answers_lost) const;
  Lost Sum(const std::deque<Lost>& windows) const;
  PairFacts Facts(const CausePair& pair);
  double AnswersLost(const CausePair& pair) const;
  CauseVerdict OfPaths(const CausePair& pair, const PairFacts& facts) const;
  FlowFacts Measure(const CauseWindow& window, const CausePair& pair, const CauseFlow& flow);
  void CountRefused(const CauseFlow& flow, const PairKey& pair, bool path_known, FlowFacts& out);
  Cause CauseOf(const CauseWindow& window, const CausePair& pair, const PairFacts& facts, const FlowFacts& flow) const;
  CauseVerdict OfFlow(const CauseWindow& window, const CausePair& pair, const PairFacts& facts, const CauseFlow& flow);
  CauseVerdict Stopped(const CauseFlow& flow, CauseVerdict nothing) const;
  bool OthersAlike(const CausePair& pair, const PairFacts& own, const FlowFacts& flow) const;
  bool Congested(const FlowFacts& flow, const Lost& probes) const;
  double OwnQueue() const;
  Lost Marks(const PathId& path) const;
  bool Queues(const CausePath& path, double less_ns = 0) const {
    return path.queue_ns - less_ns > std::max(rules.queue_over_base * path.base_ns, floor_ns);
  }
  CauseVerdict Damp(CauseVerdict now);
  void Forget();

  CauseRules rules;
  int64_t window = 0;
  double floor_ns = 0;  // of a queue, in this window
  double own_ns = 0;    // OwnQueue() of this window
  double sent_bps = 0;  // all flows of this window
  int flows = 0;
  absl::flat_hash_map<PathId, PathLosses> losses;
  absl::flat_hash_map<FlowKey, Refused> naks;
  absl::flat_hash_map<PairKey, PairFacts> facts;
  absl::flat_hash_map<std::pair<PairKey, FlowKey>, Told> told;
};

// ---- losses of probes ----

void CauseState::Impl::Remember(const CausePair& pair) {
  for (const CausePath& path : pair.paths) {
    PathLosses& l = losses[{pair.pair, path.slot}];
    l.last_window = window;
    const double lost = static_cast<double>(path.sent) - static_cast<double>(path.answered);
    l.forward.push_front({static_cast<double>(path.sent), lost});
    const double gone = static_cast<double>(path.peer_sent) - static_cast<double>(path.peer_heard);
    l.backward.push_front({static_cast<double>(path.peer_sent), gone});
    l.marks.push_front({static_cast<double>(path.ecn_samples), static_cast<double>(path.marked)});
    const auto keep = static_cast<size_t>(rules.loss_windows);
    if (l.marks.size() > keep) l.marks.pop_back();
    if (l.forward.size() > keep) l.forward.pop_back();
    if (l.backward.size() > keep) l.backward.pop_back();
  }
}

// Windows in which the path stopped, and those beside them, tell of an outage and not of a share that is lost.
Lost CauseState::Impl::Sum(const std::deque<Lost>& windows) const {
  const auto stopped = [&](size_t i) {
    return i < windows.size() && windows[i].sent > 0 && windows[i].Share() >= rules.stopped_share;
  };
  Lost sum;
  for (size_t i = 0; i < windows.size(); ++i) {
    if (stopped(i) || stopped(i + 1) || (i > 0 && stopped(i - 1))) continue;
    sum.sent += windows[i].sent;
    sum.lost += windows[i].lost;
  }
  return sum;
}

Lost CauseState::Impl::Marks(const PathId& path) const {
  Lost sum;
  const auto l = losses.find(path);
  if (l == losses.end()) return sum;
  for (const Lost& seen : l->second.marks) {
    sum.sent += seen.sent;
    sum.lost += seen.lost;
  }
  return sum;
}

// The share of answers that is lost on the way back: they take the peer's paths in turn.
double CauseState::Impl::AnswersLost(const CausePair& pair) const {
  double sum = 0;
  int paths = 0;
  for (const CausePath& path : pair.paths) {
    auto l = losses.find({pair.pair, path.slot});
    if (l == losses.end()) continue;
    const Lost back = Sum(l->second.backward);
    if (back.sent < 1) continue;
    sum += back.Share();
    ++paths;
  }
  return paths > 0 ? sum / paths : 0;
}

Direction CauseState::Impl::Losses(const CausePair& pair, bool backward, double answers_lost) const {
  Direction out;
  std::vector<std::pair<uint8_t, Lost>> paths;
  for (const CausePath& path : pair.paths) {
    auto l = losses.find({pair.pair, path.slot});
    if (l == losses.end()) continue;
    const std::deque<Lost>& windows = backward ? l->second.backward : l->second.forward;
    if (windows.front().sent < rules.least_lost) continue;
    ++out.measured;
    if (windows.front().Share() >= rules.stopped_share) {
      ++out.stopped;
      if (backward ? path.peer_dead : path.dead) out.dead_slot = path.slot;
      continue;
    }
    paths.push_back({path.slot, Sum(windows)});
  }
  std::vector<double> shares;
  for (const auto& [slot, lost] : paths) shares.push_back(lost.Share());
  std::sort(shares.begin(), shares.end());
  for (const auto& [slot, lost] : paths) {
    // What paths lose together is the machine's or the way back's; a median of all but the worst would be this one's.
    const double common = std::max(answers_lost, shares[(shares.size() - 1) / 2]);
    const double expected = lost.sent * (shares.size() > 1 ? common : answers_lost);
    const double excess = lost.lost - expected;
    const bool lossy = excess >= rules.least_lost && excess >= rules.loss_sigmas * std::sqrt(expected) &&
                       excess >= rules.least_loss * lost.sent;
    if (!lossy || excess / lost.sent <= out.lossy_share) continue;
    out.lossy_slot = slot;
    out.lossy_share = excess / lost.sent;
    out.lossy_lost = excess;
  }
  return out;
}

PairFacts CauseState::Impl::Facts(const CausePair& pair) {
  PairFacts f;
  f.backward = Losses(pair, true, 0);
  f.forward = Losses(pair, false, AnswersLost(pair));
  double least = 1e18, least_marked = 1;
  int usable = 0;
  for (const CausePath& path : pair.paths) {
    if (!path.usable || path.queue_samples == 0 || path.base_ns <= 0) continue;
    ++usable;
    least = std::min(least, path.queue_ns);
    least_marked = std::min(least_marked, Marks({pair.pair, path.slot}).Share());
    if (path.last_link != 0) f.last_links.push_back(path.last_link);
  }
  f.queue_known = usable > 0;
  f.common_queue_ns = usable > 0 ? least : 0;
  f.common_marked = usable > 0 ? least_marked : 0;
  return f;
}

// ---- verdicts ----

// One direction bad, and grey loss, are of paths, whether flows take them or not.
CauseVerdict CauseState::Impl::OfPaths(const CausePair& pair, const PairFacts& f) const {
  CauseVerdict v{.pair = pair.pair};
  const bool all = f.forward.stopped == f.forward.measured || f.backward.stopped == f.backward.measured;
  const Direction& stopped = f.backward.stopped > 0 ? f.backward : f.forward;
  if ((f.forward.stopped > 0) != (f.backward.stopped > 0) && stopped.dead_slot != kSlotNone &&
      f.backward.measured > 0 && (!all || f.forward.measured == 1)) {
    v.backwards = f.backward.stopped > 0;
    v.cause = Cause::kOneDirection;
    v.slot = stopped.dead_slot;
    v.text = v.backwards ? absl::StrFormat("the peer's path %d towards us stopped; no path to the peer did", v.slot)
                         : absl::StrFormat("path %d stopped; no path of the peer towards us did", v.slot);
    v.evidence = {{"paths_stopped", absl::StrFormat("%d", f.forward.stopped)},
                  {"peer_paths_stopped", absl::StrFormat("%d", f.backward.stopped)},
                  {"paths", absl::StrFormat("%d", f.forward.measured)}};
    return v;
  }
  const bool back = f.backward.lossy_slot != kSlotNone && f.backward.lossy_share >= f.forward.lossy_share;
  const Direction& d = back ? f.backward : f.forward;
  if (d.lossy_slot == kSlotNone || f.forward.stopped > 0 || f.backward.stopped > 0) return v;
  for (const CausePath& path : pair.paths) {  // a full queue may drop, too, and then that is the cause
    if (!back && path.slot == d.lossy_slot && path.usable && path.queue_samples > 0 && Queues(path) &&
        path.queue_ns > 20 * std::max(floor_ns, path.base_ns)) {
      return v;
    }
  }
  v.cause = Cause::kGreyLoss;
  v.backwards = back;
  v.slot = d.lossy_slot;
  v.text = absl::StrFormat("%s %d loses %.1f %% of the probes, %s", back ? "the peer's path" : "path", v.slot,
                           100 * d.lossy_share, d.measured > 1 ? "others do not" : "and is the only one");
  v.evidence = {{"loss_percent", absl::StrFormat("%.2f", 100 * d.lossy_share)},
                {"lost", absl::StrFormat("%.0f", d.lossy_lost)}};
  return v;
}

// Do the paths to other receivers queue as well? Then it is not the receiver's link. Those behind the same leaf have
// all links in common but that one; where none is known, the others tell at least of the uplinks.
bool CauseState::Impl::OthersAlike(const CausePair& pair, const PairFacts& own, const FlowFacts& flow) const {
  const double as_much = rules.alike * std::max(own.common_queue_ns - flow.own_ns, rules.marked_queue * floor_ns);
  int known = 0, alike = 0, near = 0, near_alike = 0;
  for (const auto& [key, f] : facts) {
    if (key == pair.pair || !f.queue_known) continue;
    const bool is_near = std::find_first_of(f.last_links.begin(), f.last_links.end(), own.last_links.begin(),
                                            own.last_links.end()) != f.last_links.end();
    const bool is_alike = f.common_queue_ns - flow.own_ns >= as_much ||
                          (flow.by_marks && f.common_marked >= rules.alike * own.common_marked);
    ++known;
    alike += is_alike ? 1 : 0;
    near += is_near ? 1 : 0;
    near_alike += is_near && is_alike ? 1 : 0;
  }
  if (near > 0) return near_alike >= rules.others_alike * near;
  return known > 0 && alike >= rules.others_alike * known;
}

// What all paths of this host have, whichever link they take: most likely its own processors. With paths to one
// receiver only it may be the receiver's, too; a link of the fabric marks or drops before long.
double CauseState::Impl::OwnQueue() const {
  double least = 1e18;
  for (const auto& [key, f] : facts) {
    if (f.queue_known) least = std::min(least, f.common_queue_ns);
  }
  return least < 1e18 ? least : 0;
}

// Acknowledged by somebody else than this host: a switch or the receiver.
bool CauseState::Impl::Congested(const FlowFacts& m, const Lost& probes) const {
  const bool marks = probes.lost >= rules.least_marked && probes.Share() >= rules.marked_share;
  return marks || m.cnps_per_s >= rules.few_cnps_per_s || m.asked_again.lost >= rules.least_lost;
}

FlowFacts CauseState::Impl::Measure(const CauseWindow& w, const CausePair& pair, const CauseFlow& flow) {
  FlowFacts m;
  m.bps = static_cast<double>(flow.bytes) * 8 / w.seconds;
  m.fair_bps = std::max(w.line_rate_bps / std::max(1, flows), w.line_rate_bps - (sent_bps - m.bps));
  m.other_class = flow.other_class;
  m.cnps_per_s = static_cast<double>(flow.cnps) / w.seconds;
  m.rnr_per_s = static_cast<double>(flow.rnr_naks) / w.seconds;
  const CausePath* path = nullptr;
  for (const CausePath& p : pair.paths) {
    if (p.slot == flow.slot && p.queue_samples > 0 && p.base_ns > 0) path = &p;
    if (p.slot == flow.slot) m.largest_arrives = p.largest_arrives;
  }
  if (path != nullptr) {
    m.queue_ns = path->queue_ns;
    m.queued = Queues(*path);
    m.rtt_ns = path->base_ns + m.queue_ns + pair.reverse_ns;
  }
  // Bursts that meet now and then are marked, too, but leave no queue behind them.
  m.marked = m.cnps_per_s >= rules.cnps_per_s && (path == nullptr || m.queue_ns > rules.marked_queue * floor_ns);
  // Senders that heed marks may keep a full link free of queues. What a burst of theirs meets is marked as well, but a
  // link that is not full has its marks in those moments only, and probes come at any.
  const Lost probes = path != nullptr ? Marks({pair.pair, flow.slot}) : Lost();
  m.marked_share = probes.Share();
  m.by_marks = !m.marked && !m.queued && m.cnps_per_s >= rules.few_cnps_per_s && probes.lost >= rules.least_marked &&
               m.marked_share >= rules.marked_share;
  m.marked = m.marked || m.by_marks;
  // One acknowledgement for many packets comes late for most of them.
  const double pps = static_cast<double>(flow.packets) / w.seconds;
  const double per_ack = flow.acks > 0 ? static_cast<double>(flow.packets) / static_cast<double>(flow.acks) : 1;
  m.waiting = std::max(0.0, flow.in_flight - std::max(0.0, (per_ack - 1) / 2));
  if (flow.looks > 0 && pps > 0 && m.rtt_ns > 0) m.late_ns = m.waiting / pps * 1e9 - m.rtt_ns;

  m.unacknowledged = Unacknowledged(flow);
  m.too_large = m.largest_arrives > 0 && (flow.largest == 0 || flow.largest > m.largest_arrives);
  CountRefused(flow, pair.pair, path != nullptr, m);
  m.congested = Congested(m, probes);
  m.own_ns = m.congested ? 0 : own_ns;
  m.queued = path != nullptr && Queues(*path, m.own_ns);
  m.slow = w.line_rate_bps > 0 ? m.bps < rules.slow_share * m.fair_bps : m.congested;
  return m;
}

// What its receiver asks for again, in the last windows.
void CauseState::Impl::CountRefused(const CauseFlow& flow, const PairKey& pair, bool path_known, FlowFacts& m) {
  Refused& refused = naks[flow.key];
  refused.pair = pair;
  // A full queue drops, too, and a move overtakes: only where a path is seen not to queue is a loss its own.
  const bool its_own = path_known && !flow.other_class && !flow.moved && !m.queued && !m.marked;
  refused.windows.push_front({static_cast<double>(flow.packets), its_own ? static_cast<double>(flow.seq_naks) : 0.0});
  refused.all.push_front({static_cast<double>(flow.packets), flow.moved ? 0.0 : static_cast<double>(flow.seq_naks)});
  refused.gaps.push_front(static_cast<double>(flow.gaps));
  refused.missing.push_front(static_cast<double>(flow.missing));
  if (refused.windows.size() > static_cast<size_t>(rules.loss_windows)) {
    refused.windows.pop_back();
    refused.all.pop_back();
    refused.gaps.pop_back();
    refused.missing.pop_back();
  }
  for (const Lost& l : refused.windows) m.refused.Add(l);
  for (const Lost& l : refused.all) m.asked_again.Add(l);
  const auto few = [&](const std::deque<double>& counts, const Lost& of) {
    return std::accumulate(counts.begin(), counts.end(), 0.0) < rules.least_on_wire * of.lost;
  };
  m.gaps_pending = flow.gaps_pending;
  m.lost_inside = flow.gaps_known && few(refused.gaps, m.refused);
  // What never came is known, however full the path is.
  m.overtaken = flow.gaps_known && !few(refused.gaps, m.asked_again) && few(refused.missing, m.asked_again);
}

Cause CauseState::Impl::CauseOf(const CauseWindow& w, const CausePair& pair, const PairFacts& f,
                                const FlowFacts& m) const {
  if (m.too_large && m.unacknowledged) return Cause::kPacketSize;
  if (m.rnr_per_s >= rules.rnr_per_s) return Cause::kSlowReceiver;
  const auto many = [&](const Lost& l) { return l.lost >= rules.least_lost && l.Share() >= rules.least_refused; };
  const bool lossy = many(m.refused);
  if (lossy && m.lost_inside) return Cause::kSlowReceiver;
  if (m.overtaken && many(m.asked_again)) return Cause::kReordering;
  if (lossy && !m.marked && !m.queued) return m.gaps_pending ? Cause::kNone : Cause::kGreyLoss;
  if (m.unacknowledged && (m.slow || w.line_rate_bps == 0)) return Cause::kNoAcks;
  if (!m.slow || m.other_class) return Cause::kNone;
  const double patience = m.marked ? 3 : 1;  // marked packets wait longer than probes
  if (m.late_ns > patience * rules.late_over_rtt * m.rtt_ns && m.waiting > patience * rules.late_packets) {
    return Cause::kSlowReceiver;
  }
  if (m.marked || m.queued) {
    const bool common = m.by_marks ? f.common_marked >= rules.alike * m.marked_share
                                   : f.common_queue_ns - m.own_ns >= rules.alike * (m.queue_ns - m.own_ns);
    const bool alike = f.queue_known && common && !OthersAlike(pair, f, m);
    return alike ? Cause::kIncast : Cause::kFabricContention;
  }
  return w.line_rate_bps > 0 ? Cause::kSlowSender : Cause::kNone;
}

static std::string StoppedWith(const CauseFlow& flow) {
  return absl::StrFormat("; it stopped with %.0f packets unacknowledged", flow.in_flight);
}

static std::string Sentence(Cause cause, const CauseFlow& flow, const PairFacts& f, const FlowFacts& m, double alike) {
  switch (cause) {
    case Cause::kSlowReceiver:
      if (flow.rnr_naks > 0) return absl::StrFormat("the receiver was not ready %d times", flow.rnr_naks);
      if (m.lost_inside && m.refused.lost > 0) {
        return absl::StrFormat(
            "its host drops packets: of the last %.0f it asked %.0f times for some again, and all had "
            "reached its NIC",
            m.refused.sent, m.refused.lost);
      }
      return absl::StrFormat("acknowledgements come %s us later than the way there and back takes", Us(m.late_ns));
    case Cause::kPacketSize:
      return absl::StrFormat("packets above %d bytes do not arrive on path %d", m.largest_arrives, flow.slot);
    case Cause::kNoAcks:
      return absl::StrFormat("nothing of what it sends is acknowledged: %.0f packets wait", flow.in_flight);
    case Cause::kGreyLoss:
      return absl::StrFormat("%.0f times in its last %.0f packets some were missing, and its path does not queue",
                             m.refused.lost, m.refused.sent);
    case Cause::kReordering:
      return absl::StrFormat(
          "of its last %.0f packets some were asked for again %.0f times, and all had arrived: they overtake each "
          "other",
          m.asked_again.sent, m.asked_again.lost);
    case Cause::kIncast:
      return m.by_marks ? "on all paths to this receiver probes are marked alike: its link is full"
                        : "all paths to this receiver queue alike: its link is full";
    case Cause::kFabricContention:
      if (m.by_marks && f.common_marked < alike * m.marked_share) {
        return absl::StrFormat("of the probes on path %d %.1f %% are marked, the least of this pair %.1f %%", flow.slot,
                               100 * m.marked_share, 100 * f.common_marked);
      }
      if (m.by_marks || f.common_queue_ns - m.own_ns >= alike * (m.queue_ns - m.own_ns))
        return "all paths are full alike, those to other receivers, too";
      return absl::StrFormat("path %d queues %s us, the least of this pair %s us", flow.slot, Us(m.queue_ns),
                             Us(f.common_queue_ns));
    case Cause::kSlowSender:
      return absl::StrFormat("%sit sends %.1f Mbit/s of the %.1f it could, and nothing holds it up on the way",
                             flow.awaited ? "a collective waits for it: " : "", m.bps / 1e6, m.fair_bps / 1e6);
    default:
      return "";
  }
}

CauseVerdict CauseState::Impl::OfFlow(const CauseWindow& w, const CausePair& pair, const PairFacts& f,
                                      const CauseFlow& flow) {
  CauseVerdict v{.pair = pair.pair, .flow = flow.key, .slot = flow.slot};
  const FlowFacts m = Measure(w, pair, flow);
  // It may have stopped before the size that its path takes was found.
  if (flow.packets == 0 && m.too_large && m.unacknowledged) {
    v.cause = Cause::kPacketSize;
    v.stopped = true;
    v.text = absl::StrCat(Sentence(v.cause, flow, f, m, rules.alike), StoppedWith(flow));
    return v;
  }
  if (flow.packets == 0) return Stopped(flow, std::move(v));
  v.cause = CauseOf(w, pair, f, m);
  v.awaited = v.cause == Cause::kSlowSender && flow.awaited;
  v.text = Sentence(v.cause, flow, f, m, rules.alike);
  v.evidence = {{"rate_mbps", absl::StrFormat("%.1f", m.bps / 1e6)},
                {"fair_mbps", absl::StrFormat("%.1f", m.fair_bps / 1e6)},
                {"queue_us", Us(m.queue_ns)},
                {"own_queue_us", Us(m.own_ns)},
                {"least_queue_us", Us(f.common_queue_ns)},
                {"cnps_per_s", absl::StrFormat("%.1f", m.cnps_per_s)},
                {"probes_marked_percent", absl::StrFormat("%.2f", 100 * m.marked_share)},
                {"rnr_naks", absl::StrFormat("%d", flow.rnr_naks)},
                {"seq_naks", absl::StrFormat("%d", flow.seq_naks)},
                {"in_flight", absl::StrFormat("%.1f", flow.in_flight)},
                {"acknowledged_late_us", Us(std::max(0.0, m.late_ns))}};
  return v;
}

// Of a flow that sent nothing in this window.
CauseVerdict CauseState::Impl::Stopped(const CauseFlow& flow, CauseVerdict nothing) const {
  const auto before = told.find({nothing.pair, nothing.flow});
  if (before == told.end() || before->second.verdict.cause == Cause::kNone || !Unacknowledged(flow)) return nothing;
  CauseVerdict v = before->second.verdict;
  if (v.stopped) return v;
  if (v.cause == Cause::kSlowSender) return nothing;
  if (v.cause == Cause::kSlowReceiver) v.cause = Cause::kNoAcks;  // it may be anybody now
  v.stopped = true;
  v.text += StoppedWith(flow);
  return v;
}

// ---- damping ----

CauseVerdict CauseState::Impl::Damp(CauseVerdict now) {
  Told& t = told[{now.pair, now.flow}];
  t.last_window = window;
  const bool again = t.candidate == now.cause && t.awaited == now.awaited && t.stopped == now.stopped;
  t.windows = t.windows > 0 && again ? t.windows + 1 : 1;
  t.candidate = now.cause;
  t.awaited = now.awaited;
  t.stopped = now.stopped;
  const bool same =
      now.cause == t.verdict.cause && now.awaited == t.verdict.awaited && now.stopped == t.verdict.stopped;
  if (same || t.windows >= rules.agree_windows) {
    now.changed = !same;
    t.verdict = std::move(now);
  } else {
    t.verdict.pair = now.pair;
    t.verdict.flow = now.flow;
    t.verdict.changed = false;
  }
  return t.verdict;
}

void CauseState::Impl::Forget() {
  absl::erase_if(told, [&](const auto& e) { return e.second.last_window != window; });
  absl::erase_if(losses, [&](const auto& e) { return e.second.last_window != window; });
  absl::erase_if(naks, [&](const auto& e) { return !told.contains({e.second.pair, e.first}); });
}

CauseState::CauseState(const CauseRules& rules) : impl_(std::make_unique<Impl>(rules)) {}
CauseState::~CauseState() = default;
CauseState::CauseState(CauseState&&) noexcept = default;

void CauseState::SetRules(const CauseRules& rules) { impl_->rules = rules; }

std::vector<CauseVerdict> CauseState::Judge(const CauseWindow& w) {
  Impl& s = *impl_;
  if (w.seconds <= 0) return {};
  ++s.window;
  s.floor_ns = s.rules.queue_floor_ns;
  if (w.line_rate_bps > 0) s.floor_ns = std::max(s.floor_ns, s.rules.floor_bits / w.line_rate_bps * 1e9);
  s.sent_bps = 0;
  s.flows = 0;
  s.facts.clear();
  for (const CausePair& pair : w.pairs) {
    s.Remember(pair);
    s.facts[pair.pair] = s.Facts(pair);
    for (const CauseFlow& flow : pair.flows) {
      s.sent_bps += static_cast<double>(flow.bytes) * 8 / w.seconds;
      s.flows += flow.packets > 0 ? 1 : 0;
    }
  }
  s.own_ns = s.OwnQueue();
  std::vector<CauseVerdict> out;
  for (const CausePair& pair : w.pairs) {
    const PairFacts facts = s.facts[pair.pair];
    const CauseVerdict paths = s.OfPaths(pair, facts);
    CauseVerdict worst = paths;
    for (const CauseFlow& flow : pair.flows) {
      CauseVerdict v = s.OfFlow(w, pair, facts, flow);
      if (paths.cause != Cause::kNone && !paths.backwards && paths.slot == flow.slot) {
        v = paths;
        v.flow = flow.key;
      }
      if (worst.cause == Cause::kNone && v.cause != Cause::kNone) {
        worst = v;
        worst.flow = {};
      }
      out.push_back(s.Damp(std::move(v)));
    }
    out.push_back(s.Damp(std::move(worst)));
  }
  s.Forget();
  return out;
}

}  // namespace cw::control
