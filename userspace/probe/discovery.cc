// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/discovery.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cw::probe {
namespace {

constexpr int kTracesForDepth = 3;  // finished traces before silence at a TTL counts as the end of the path
// Ports whose hops end where others go on are most likely all on one path that is cut behind that hop.
constexpr int kMaxCutPaths = 2;
constexpr size_t kTestedPorts = 3;
// Switches answer within milliseconds; a table is not to wait for the silence behind each path.
constexpr int64_t kEndTimeoutNs = 50'000'000;
constexpr int64_t kHurriedNs = 1'000'000'000;

}  // namespace

Discovery::Discovery(const DiscoveryOptions& options, const std::vector<uint16_t>& preferred, const PathPool* pool)
    : options_(options), pool_(pool), random_(options.seed), preferred_(preferred) {
  Restart();
}

size_t Discovery::PortCount() const { return options_.ports.empty() ? options_.port_count : options_.ports.size(); }

uint16_t Discovery::DrawPort() {
  if (!options_.ports.empty()) return options_.ports[random_() % options_.ports.size()];
  return static_cast<uint16_t>(options_.first_port + random_() % options_.port_count);
}

void Discovery::Restart() {
  building_ = true;
  candidates_.clear();
  not_drawn_ = preferred_.size();
  active_.clear();
  results_.clear();
  verify_.clear();
  unsure_.clear();
  cut_.clear();
  repeats_.Cancel();
  depth_ = 0;
  finished_ = 0;
}

void Discovery::Rebuild() {
  table_.valid = false;
  Restart();
}

int64_t Discovery::HurriedNs() const { return std::min(kHurriedNs, options_.verify_interval_ns); }

void Discovery::Doubt(int64_t now_ns) {
  const bool lately = doubted_ns_ != 0 && now_ns - doubted_ns_ < HurriedNs();
  if (!lately) doubted_ns_ = now_ns;
  for (auto* ports : {&verify_, &unsure_}) {
    for (auto& [port, verify] : *ports) {
      verify.step_ns = HurriedNs();
      verify.at_ns = std::min(verify.at_ns, lately ? now_ns + verify.step_ns : now_ns);
    }
  }
}

// Each path has kept its hops for so long that it is traced at the usual pace again.
void Discovery::LookForCalm() {
  const auto calm = [this](const auto& entry) { return entry.second.step_ns >= options_.verify_interval_ns; };
  if (!in_motion_ || building_ || !std::all_of(verify_.begin(), verify_.end(), calm)) return;
  in_motion_ = false;
  events_.push_back({DiscoveryEvent::Kind::kCalm, 0, {}, {}});
}

void Discovery::TracePort(uint16_t port) {
  demanded_.insert(port);
  if (const auto it = results_.find(port); it != results_.end()) {
    events_.push_back({DiscoveryEvent::Kind::kTraced, port, {}, it->second});
  }
}

void Discovery::ForgetPort(uint16_t port) {
  demanded_.erase(port);
  unsure_.erase(port);
}

bool Discovery::NothingAnswers() const { return depth_ == 0 && finished_ >= kTracesForDepth; }

int Discovery::MaxTtl() const { return std::clamp(options_.max_ttl, 1, kMaxTraceTtl); }

bool Discovery::DepthKnown() const { return finished_ >= kTracesForDepth && depth_ > 0; }

// One behind the deepest that was answered: the first traces may all have been on paths that are cut, or short.
int Discovery::LastTtl() const { return DepthKnown() ? std::min(depth_ + 1, MaxTtl()) : MaxTtl(); }

// Where no other trace was answered, one more silence is the end.
int Discovery::TriesAt(int ttl) const { return DepthKnown() && ttl > depth_ ? 1 : options_.tries; }

int64_t Discovery::TimeoutNs(int ttl) const {
  return DepthKnown() && ttl > depth_ ? std::min(kEndTimeoutNs, options_.timeout_ns) : options_.timeout_ns;
}

// Adopted ports are one per path, so they say nothing about the paths that are not among them: only drawn ports count.
Discovery::Sample Discovery::SampleSoFar() const {
  const std::map<uint16_t, Hops> certain = CertainHops(results_);
  Sample sample;
  for (const auto& [port, hops] : certain) sample.paths.insert(hops);
  const size_t fixed = std::min(not_drawn_, candidates_.size());
  sample.drawn = static_cast<int>(std::count_if(candidates_.begin() + static_cast<ptrdiff_t>(fixed), candidates_.end(),
                                                [&](uint16_t port) { return certain.contains(port); }));
  return sample;
}

bool Discovery::OneMoreIsUnlikely(size_t paths, int drawn) const {
  const auto k = static_cast<double>(paths);
  return (k + 1) * std::pow(k / (k + 1), drawn) < options_.miss_probability;
}

// Of the paths that pairs behind the same switch know, those that are not among these; nullopt: they do not know all.
std::optional<size_t> Discovery::MissingOfKnown(const std::set<Hops>& paths) const {
  const PathPool::Group* group = pool_ == nullptr ? nullptr : pool_->Find(paths);
  if (group == nullptr || !OneMoreIsUnlikely(group->paths.size(), group->ports)) return std::nullopt;
  const size_t wanted = std::min(group->paths.size(), static_cast<size_t>(options_.max_paths));
  return wanted - std::min(wanted, paths.size());
}

bool Discovery::WantMoreCandidates() const {
  if (!building_ || NothingAnswers()) return false;
  const size_t drawn = candidates_.size() - std::min(not_drawn_, candidates_.size());
  if (drawn >= static_cast<size_t>(options_.max_candidates) || candidates_.size() >= PortCount()) return false;
  const Sample sample = SampleSoFar();
  if (sample.paths.empty()) return true;
  return !OneMoreIsUnlikely(sample.paths.size(), sample.drawn) && MissingOfKnown(sample.paths) != size_t{0};
}

std::optional<uint16_t> Discovery::NextCandidate() {
  if (candidates_.size() < preferred_.size()) {
    candidates_.push_back(preferred_[candidates_.size()]);
    return candidates_.back();
  }
  if (!WantMoreCandidates()) return std::nullopt;
  for (;;) {
    const auto port = DrawPort();
    if (std::find(candidates_.begin(), candidates_.end(), port) != candidates_.end()) continue;
    candidates_.push_back(port);
    return port;
  }
}

// Few traces show that no switch answers, and the last missing path of those that are known may be the next.
int Discovery::Window() const {
  if (depth_ == 0) return std::min(options_.window, kTracesForDepth);
  if (!building_ || pool_ == nullptr) return options_.window;
  const std::optional<size_t> missing = MissingOfKnown(SampleSoFar().paths);
  return missing ? std::clamp(static_cast<int>(*missing), 1, options_.window) : options_.window;
}

void Discovery::StartTraces(int64_t now_ns) {
  const auto room = [this, window = Window()] { return static_cast<int>(active_.size()) < window; };
  for (uint16_t port : demanded_) {
    if (!room()) return;
    if (!results_.contains(port) && !active_.contains(port)) active_[port].purpose = Purpose::kDemand;
  }
  while (building_ && room()) {
    const std::optional<uint16_t> port = NextCandidate();
    if (!port.has_value()) break;
    if (!results_.contains(*port) && !active_.contains(*port)) active_[*port].purpose = Purpose::kCandidate;
  }
  if (building_) return;
  for (uint16_t port : repeats_.Wanted()) {
    if (!room()) return;
    if (!active_.contains(port)) active_.emplace(port, RepeatTrace(port));
  }
  for (auto& [port, again] : unsure_) {
    if (!room()) return;
    if (again.at_ns > now_ns || active_.contains(port)) continue;
    again.at_ns = now_ns + again.step_ns;
    again.step_ns = std::min(2 * again.step_ns, options_.verify_interval_ns);
    active_[port].purpose = Purpose::kDemand;
  }
  for (auto& [port, verify] : verify_) {
    if (!room()) return;
    if (verify.at_ns > now_ns || active_.contains(port)) continue;
    verify.at_ns = now_ns + verify.step_ns;
    verify.step_ns = std::min(2 * verify.step_ns, options_.verify_interval_ns);
    if (hashing_ != Hashing::kSprayed) {
      active_[port].purpose = Purpose::kVerify;
    } else if (!repeats_.running()) {
      BeginSelfTest();
      return;  // it may have begun a new table
    }
  }
}

// Switches that did not answer before are not waited for.
Discovery::Trace Discovery::RepeatTrace(uint16_t port) const {
  Trace trace{.purpose = Purpose::kRepeat, .qpn = repeats_.Qpn(port), .hop = {}};
  const Hops* before = HopsOf(port);
  for (size_t i = 0; before != nullptr && i < trace.hop.size(); ++i) {
    trace.hop[i].done = i >= before->size() || (*before)[i].is_zero();
  }
  return trace;
}

void Discovery::Expire(int64_t now_ns) {
  for (auto& [port, trace] : active_) {
    for (int ttl = 1; ttl <= kMaxTraceTtl; ++ttl) {
      Attempt& a = trace.hop[ttl - 1];
      if (a.done || a.ip_id == 0 || a.sent_ns + TimeoutNs(ttl) > now_ns) continue;
      a.ip_id = 0;
      if (a.tries >= TriesAt(ttl)) a.done = true;
    }
  }
}

uint16_t Discovery::NextIpId(int ttl) {
  next_nonce_ = (next_nonce_ + 1) & 0xfff;
  return static_cast<uint16_t>(0x8000 | next_nonce_ << 3 | ttl);
}

std::vector<TraceProbe> Discovery::Poll(int64_t now_ns, const std::function<bool(int ttl)>& grant) {
  Expire(now_ns);
  FinishTraces(now_ns);
  StartTraces(now_ns);
  std::vector<TraceProbe> out;
  std::array<bool, kMaxTraceTtl> refused{};
  for (auto& [port, trace] : active_) {
    for (int ttl = 1; ttl <= LastTtl(); ++ttl) {
      Attempt& a = trace.hop[ttl - 1];
      if (a.done || a.ip_id != 0 || refused[ttl - 1]) continue;
      if (!grant(ttl)) {
        refused[ttl - 1] = true;
        continue;
      }
      a.ip_id = NextIpId(ttl);
      a.sent_ns = now_ns;
      ++a.tries;
      out.push_back({port, static_cast<uint8_t>(ttl), a.ip_id, trace.qpn});
    }
  }
  return out;
}

void Discovery::OnAnswer(uint16_t port, uint16_t ip_id, const Addr& router, int64_t now_ns) {
  const int ttl = ip_id & 7;
  const auto it = active_.find(port);
  if (it == active_.end() || ttl == 0 || router.is_zero()) return;
  Attempt& a = it->second.hop[ttl - 1];
  if (a.done || a.ip_id != ip_id) return;
  a.done = true;
  a.router = router;
  depth_ = std::max(depth_, ttl);
  FinishTraces(now_ns);
}

// A finished trace may end others (the depth becomes known) or all of them (a hop differs): start again after each.
void Discovery::FinishTraces(int64_t now_ns) {
  for (auto it = active_.begin(); it != active_.end();) {
    const auto& hop = it->second.hop;
    if (!std::all_of(hop.begin(), hop.begin() + LastTtl(), [](const Attempt& a) { return a.done; })) {
      ++it;
      continue;
    }
    const uint16_t port = it->first;
    const Trace trace = it->second;
    active_.erase(it);
    Finish(port, trace, now_ns);
    it = active_.begin();
  }
  const bool candidates_left =
      candidates_.size() < preferred_.size() ||
      std::any_of(candidates_.begin(), candidates_.end(), [this](uint16_t p) { return active_.contains(p); });
  if (building_ && !candidates_.empty() && (NothingAnswers() || !candidates_left) && !WantMoreCandidates()) {
    building_ = false;
    BuildTable(now_ns);
    if (NothingAnswers()) active_.clear();
    ScheduleVerify(now_ns);
    NoteUnsure(now_ns);
    BeginSelfTest();
  }
}

void Discovery::Finish(uint16_t port, const Trace& trace, int64_t now_ns) {
  Hops hops;
  for (const Attempt& a : trace.hop) hops.push_back(a.router);
  hops = TrimSilence(std::move(hops));
  ++finished_;
  if (trace.purpose == Purpose::kRepeat) {
    repeats_.Add(port, hops);
    if (!repeats_.running()) FinishSelfTest();
  } else if (trace.purpose == Purpose::kVerify) {
    FinishVerify(port, hops, now_ns);
  } else if (building_) {
    results_[port] = hops;
  } else {
    FinishDemand(port, hops, now_ns);
  }
  if (demanded_.contains(port)) events_.push_back({DiscoveryEvent::Kind::kTraced, port, {}, hops});
}

void Discovery::FinishVerify(uint16_t port, const Hops& hops, int64_t now_ns) {
  const auto path =
      std::find_if(table_.paths.begin(), table_.paths.end(), [&](const Path& p) { return p.port == port; });
  if (path == table_.paths.end() || hashing_ == Hashing::kSprayed) return;
  if (Conflict(path->hops, hops)) {
    events_.push_back({DiscoveryEvent::Kind::kInvalid, port, path->hops, hops});
    in_motion_ = true;
    Rebuild();
    return;
  }
  if (path->known) {
    if (hops == path->hops) path->verified_ns = now_ns;  // less than before: its age grows, and it may be cut there
    NoteCut(port, !HasGap(hops) && hops.size() < path->hops.size() ? hops : Hops());
  } else if (path->hops.empty() && !hops.empty()) {
    Restart();  // switches that were silent answer now; the table as it is stays usable until then
  } else if (!HasGap(hops)) {
    results_[port] = hops;
    BuildTable(now_ns);
  }
  LookForCalm();
}

void Discovery::NoteCut(uint16_t port, const Hops& hops) {
  const auto before = cut_.find(port);
  if (before == cut_.end() ? hops.empty() : before->second == hops) return;
  if (hops.empty())
    cut_.erase(before);
  else
    cut_[port] = hops;
  events_.push_back({DiscoveryEvent::Kind::kCut, port, {}, hops});
}

// What was traced while its path was cut is traced again until its hops are whole. Less than before is no news.
void Discovery::FinishDemand(uint16_t port, const Hops& hops, int64_t now_ns) {
  const auto known = [](const Hops& list) {
    return std::count_if(list.begin(), list.end(), [](const Addr& hop) { return !hop.is_zero(); });
  };
  const Hops* before = HopsOf(port);
  const bool more = before != nullptr && known(hops) > known(*before);
  if (more && !demanded_.contains(port) && !HasGap(hops) && IsNew(hops)) {
    Restart();  // what was cut then is a path of its own; the table as it is stays usable until then
    return;
  }
  if (before == nullptr || more || Conflict(*before, hops)) {
    results_[port] = hops;
    BuildTable(now_ns);
  }
  NoteUnsure(now_ns);
}

// Of more paths than the table takes, and of those that a fabric sprays over, any may be lacking.
bool Discovery::IsNew(const Hops& hops) const {
  return !table_.truncated && hashing_ != Hashing::kSprayed &&
         std::none_of(table_.paths.begin(), table_.paths.end(), [&](const Path& p) { return p.hops == hops; });
}

// Ports whose traces ended before those of the only path that begins so: what lies behind may have been dead then.
std::set<uint16_t> Discovery::ShortPorts(const std::map<uint16_t, Hops>& certain) const {
  std::set<uint16_t> ports;
  for (const uint16_t port : candidates_) {
    const auto traced = results_.find(port);
    const auto whole = certain.find(port);
    if (ports.size() < kMaxCutPaths && traced != results_.end() && whole != certain.end() &&
        traced->second.size() < whole->second.size())
      ports.insert(port);
  }
  return ports;
}

void Discovery::NoteUnsure(int64_t now_ns) {
  const std::map<uint16_t, Hops> certain = CertainHops(results_);
  std::set<uint16_t> ports;
  if (!NothingAnswers()) ports = ShortPorts(certain);
  for (const uint16_t port : demanded_) {
    if (!NothingAnswers() && results_.contains(port) && !certain.contains(port)) ports.insert(port);
  }
  std::erase_if(unsure_, [&](const auto& again) { return !ports.contains(again.first); });
  for (const uint16_t port : ports) unsure_.try_emplace(port, Verify{now_ns + HurriedNs(), 2 * HurriedNs()});
}

void Discovery::BeginSelfTest() {
  const PathPool::Group* group = pool_ == nullptr ? nullptr : pool_->Find(SampleSoFar().paths);
  if (hashing_ == Hashing::kUnknown && group != nullptr && group->hashing == Hashing::kPorts) {
    hashing_ = group->hashing;  // as others behind the same switches were tested
    events_.push_back({DiscoveryEvent::Kind::kHashing, 0, {}, {}});
    return;
  }
  std::map<uint16_t, Hops> tested;
  for (const Path& p : table_.paths) {
    if (tested.size() < kTestedPorts && !p.hops.empty()) tested[p.port] = p.hops;
  }
  repeats_.Begin(tested);
  if (!repeats_.running()) FinishSelfTest();
}

void Discovery::FinishSelfTest() {
  const Hashing before = std::exchange(hashing_, Judge());
  if (hashing_ != before) events_.push_back({DiscoveryEvent::Kind::kHashing, 0, {}, {}});
  if (before == Hashing::kSprayed && hashing_ != before) Rebuild();  // the table was made of chance
}

Hashing Discovery::Judge() const {
  if (repeats_.Sprayed()) return Hashing::kSprayed;
  if (repeats_.QpnMatters()) return Hashing::kQpn;
  if (TracesContradict(results_)) return Hashing::kTtl;
  if (PortsDiffer(results_)) return Hashing::kPorts;
  return table_.paths.size() == 1 && table_.paths[0].known ? Hashing::kSinglePath : Hashing::kUnknown;
}

std::vector<uint16_t> Discovery::PortsByPreference() const {
  std::vector<uint16_t> order;
  std::set<uint16_t> seen;
  const auto add = [&](uint16_t port) {
    if (seen.insert(port).second) order.push_back(port);
  };
  for (const Path& p : table_.paths) add(p.port);
  for (uint16_t port : preferred_) add(port);
  for (uint16_t port : candidates_) add(port);
  for (const auto& [port, hops] : results_) add(port);
  return order;
}

void Discovery::BuildTable(int64_t now_ns) {
  const std::map<uint16_t, Hops> certain = CertainHops(results_);
  PathTable next;
  std::vector<Path> unknown;
  std::map<Hops, uint16_t> port_of;
  int cut = 0;
  for (uint16_t port : PortsByPreference()) {
    const auto result = results_.find(port);
    if (result == results_.end()) continue;
    if (const auto it = certain.find(port); it == certain.end()) {
      const bool chosen = std::find(candidates_.begin(), candidates_.end(), port) != candidates_.end();
      const bool usable = chosen && (HasGap(result->second) || ++cut <= kMaxCutPaths);
      if (usable) unknown.push_back({port, result->second, false, now_ns});
    } else if (port_of.contains(it->second) || result->second != it->second) {
      continue;  // of a shorter trace it is not known that it takes this path
    } else if (static_cast<int>(port_of.size()) < options_.max_paths) {
      port_of.emplace(it->second, port);
      next.paths.push_back({port, it->second, true, now_ns});
    } else {
      next.truncated = true;
    }
  }
  // By hops, so that all hosts of a rack number their paths alike and spread their flows side by side.
  std::sort(next.paths.begin(), next.paths.end(), [](const Path& a, const Path& b) { return a.hops < b.hops; });
  const auto room = static_cast<size_t>(options_.max_paths) - next.paths.size();
  unknown.resize(std::min({unknown.size(), room, static_cast<size_t>(options_.max_unknown)}));
  next.paths.insert(next.paths.end(), unknown.begin(), unknown.end());
  if (NothingAnswers()) DrawUnknownPaths(&next);

  fold_.clear();
  for (const auto& [port, hops] : certain) {
    if (const auto it = port_of.find(hops); it != port_of.end()) fold_[port] = it->second;
  }
  const auto same = [](const Path& a, const Path& b) { return a.port == b.port && a.hops == b.hops; };
  const bool changed = !table_.valid || !std::equal(next.paths.begin(), next.paths.end(), table_.paths.begin(),
                                                    table_.paths.end(), same);
  if (!changed) return;
  for (Path& p : next.paths) {  // what was not traced in this build keeps its age
    const auto before =
        std::find_if(table_.paths.begin(), table_.paths.end(), [&](const Path& b) { return same(p, b); });
    if (table_.valid && before != table_.paths.end()) p.verified_ns = before->verified_ns;
  }
  next.valid = true;
  next.generation = table_.generation + 1;
  table_ = std::move(next);
  preferred_.clear();
  for (const Path& p : table_.paths) {
    preferred_.push_back(p.port);
    verify_.try_emplace(p.port, Verify{now_ns + options_.verify_interval_ns, options_.verify_interval_ns});
  }
  std::erase_if(verify_, [this](const auto& v) {
    return std::find(preferred_.begin(), preferred_.end(), v.first) == preferred_.end();
  });
  events_.push_back({DiscoveryEvent::Kind::kTable, 0, {}, {}});
}

// No switch answers, so nothing can be learned from more traces: as many ports as unknown paths are allowed.
void Discovery::DrawUnknownPaths(PathTable* table) {
  const auto want = static_cast<size_t>(std::min(options_.max_unknown, options_.max_paths));
  const int64_t now_ns = table->paths.empty() ? 0 : table->paths[0].verified_ns;
  for (size_t i = 0; table->paths.size() < want && (i < candidates_.size() || candidates_.size() < PortCount()); ++i) {
    if (i == candidates_.size()) {
      const auto port = DrawPort();
      if (std::find(candidates_.begin(), candidates_.end(), port) != candidates_.end()) {
        --i;
        continue;
      }
      candidates_.push_back(port);
    }
    const uint16_t port = candidates_[i];
    const bool there =
        std::any_of(table->paths.begin(), table->paths.end(), [&](const Path& p) { return p.port == port; });
    if (!there) table->paths.push_back({port, {}, false, now_ns});
  }
}

// Spread over the interval, so that verification never needs the whole budget at once.
void Discovery::ScheduleVerify(int64_t now_ns) {
  verify_.clear();
  const auto n = static_cast<int64_t>(table_.paths.size());
  const int64_t interval_ns = in_motion_ ? HurriedNs() : options_.verify_interval_ns;
  for (int64_t i = 0; i < n; ++i) {
    verify_[table_.paths[i].port] = {now_ns + interval_ns * (i + 1) / n, interval_ns};
  }
}

int64_t Discovery::NextDeadlineNs() const {
  if (building_ && active_.empty()) return 0;
  int64_t next = INT64_MAX;
  for (const auto& [port, trace] : active_) {
    for (int ttl = 1; ttl <= LastTtl(); ++ttl) {
      const Attempt& a = trace.hop[ttl - 1];
      if (!a.done) next = std::min(next, a.ip_id == 0 ? 0 : a.sent_ns + TimeoutNs(ttl));
    }
  }
  for (const auto* ports : {&verify_, &unsure_}) {
    for (const auto& [port, verify] : *ports) {
      if (!building_) next = std::min(next, verify.at_ns);
    }
  }
  for (uint16_t port : demanded_) {
    if (!results_.contains(port) && !active_.contains(port)) next = 0;
  }
  for (uint16_t port : repeats_.Wanted()) {
    if (!active_.contains(port)) next = 0;
  }
  return next;
}

std::vector<DiscoveryEvent> Discovery::TakeEvents() { return std::exchange(events_, {}); }

std::optional<uint16_t> Discovery::Fold(uint16_t port) const {
  const auto it = fold_.find(port);
  if (it == fold_.end()) return std::nullopt;
  return it->second;
}

bool Discovery::EndsAtLastSwitch(uint16_t port) const {
  const Hops* hops = HopsOf(port);
  if (hops == nullptr || depth_ >= MaxTtl() || static_cast<int>(hops->size()) < depth_) return false;
  return std::any_of(table_.paths.begin(), table_.paths.end(),
                     [&](const Path& path) { return path.known && path.hops == *hops; });
}

const Hops* Discovery::HopsOf(uint16_t port) const {
  const auto it = results_.find(port);
  return it == results_.end() ? nullptr : &it->second;
}

const Hops* Discovery::CutOf(uint16_t port) const {
  const auto cut = cut_.find(port);
  return cut == cut_.end() ? nullptr : &cut->second;
}

}  // namespace cw::probe
