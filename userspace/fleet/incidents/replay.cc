// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/incidents/replay.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "userspace/fleet/incidents/timeline.h"
#include "userspace/fleet/ingest/translate.h"
#include "userspace/fleet/live/host_paths.h"
#include "userspace/fleet/query/finding_message.h"
#include "userspace/fleet/query/host_event.h"
#include "userspace/fleet/topology/nic_places.h"
#include "userspace/model/hops_id.h"
#include "userspace/model/packed_sketch.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr int64_t kStepNs = 1'000'000'000;
constexpr int64_t kLateNs = 200'000'000;     // a second is told so long after its end
constexpr int64_t kGoneNs = 15'000'000'000;  // a host that tells nothing for so long has no connection
constexpr int64_t kMostSpanNs = 7'200'000'000'000;
constexpr size_t kOfFabric = 10;  // that a new look at the fabric is worth, for each path
// Probes under way when a second ends are answered in the next one.
constexpr uint64_t kUnderWay = 2;

// The newest word of one path, and what it lost so far.
struct PathNow {
  PathEvidence evidence;
  std::vector<Addr> hops;
  bool hops_known = false;
  uint64_t sent = 0, answered = 0, lost_told = 0;
};

struct HostNow {
  HostEvidence told;
  PathNames names;
  const std::vector<pb::RingSecond>* seconds = nullptr;
  size_t next = 0;
  std::map<PathKey, PathNow> paths;
};

class Player {
 public:
  Player(const Bundle& bundle, const FleetFile& fabric, const FindingRules& rules, size_t most_looks)
      : bundle_(bundle), fabric_(fabric), findings_(rules), most_looks_(most_looks) {
    for (const pb::IncidentHost& host : bundle.head.hosts()) AddHost(host);
    for (const auto& [name, seconds] : bundle.seconds) {
      HostNow& host = hosts_[name];
      host.told.name = name;
      host.seconds = &seconds;
      if (seconds.empty()) continue;
      from_ns_ = std::min(from_ns_, seconds.front().from_ns());
      to_ns_ = std::max(to_ns_, seconds.back().to_ns());
    }
    std::erase_if(hosts_, [](const auto& host) { return host.second.seconds == nullptr; });
  }

  pb::IncidentReplay Run() {
    if (from_ns_ < to_ns_) {
      to_ns_ = std::min(to_ns_, from_ns_ + kMostSpanNs);
      int64_t now_ns = from_ns_ + kStepNs;
      for (; now_ns <= to_ns_ + kStepNs && looks_ < most_looks_; now_ns += kStepNs) Step(now_ns);
      if (now_ns <= to_ns_ + kStepNs) {
        out_.add_notes("it has more paths and seconds than are replayed: the last ones are left out");
        to_ns_ = now_ns;
      }
      out_.set_from_ns(from_ns_);
      out_.set_to_ns(to_ns_);
    } else {
      out_.add_notes("no host's seconds are in this incident: there is nothing to replay");
    }
    for (const uint64_t id : order_) *out_.add_findings() = MessageOf(found_.at(id));
    Notes();
    return std::move(out_);
  }

 private:
  void AddHost(const pb::IncidentHost& in) {
    HostNow& host = hosts_[in.host()];
    host.told.name = in.host();
    host.told.clock_known = in.clock_known();
    host.told.clock_synced = in.clock_synced();
    for (const pb::NicFacts& nic : in.nics()) {
      for (const std::string& bytes : nic.addresses()) {
        if (const std::optional<Addr> address = AddressOf(bytes)) host.told.nics.push_back({nic.name(), *address});
      }
    }
  }

  void Take(HostNow& host, const pb::RingSecond& second) {
    host.names.Learn(second);
    host.told.newest_ns = std::max(host.told.newest_ns, second.to_ns());
    for (const pb::RingPath& path : second.paths()) {
      const NamedPath* name = host.names.Find(second.run(), path.path());
      // The way back is told by the peer, as in the service.
      if (name == nullptr || name->key.reverse) continue;
      Take(host.paths[name->key], *name, second, path);
    }
  }

  void Take(PathNow& now, const NamedPath& name, const pb::RingSecond& second, const pb::RingPath& path) {
    if (now.hops_known != name.hops_known || now.hops != name.hops) ++fabric_seen_;
    now.hops = name.hops;
    now.hops_known = name.hops_known;
    now.sent += path.sent();
    now.answered += path.answered();
    const uint64_t missing = now.sent > now.answered ? now.sent - now.answered : 0;
    const uint64_t known = missing > kUnderWay ? missing - kUnderWay : 0;
    const uint64_t fresh = known > now.lost_told ? known - now.lost_told : 0;
    PathEvidence& out = now.evidence;
    out.source = name.key.local;
    out.destination = name.key.remote;
    out.udp_port = name.key.udp_port;
    out.hops_id = now.hops_known ? HopsId(now.hops) : 0;
    out.state = EvidenceOf(PathSample{.state = StateOf(path)});
    out.sent = path.sent();
    out.lost = static_cast<uint32_t>(std::min<uint64_t>(fresh, path.sent()));
    now.lost_told += out.lost;
    const absl::StatusOr<PackedSketch> queue = PackedSketch::Unpack(path.queue());
    out.queue_ns = queue.ok() ? queue->QuantileNs(0.5) : 0;
    out.base_ns = static_cast<double>(path.base_ns());
    out.time_ns = second.to_ns();
  }

  void Step(int64_t now_ns) {
    Picture picture{.now_ns = now_ns + kLateNs};
    for (auto& [name, host] : hosts_) {
      const std::vector<pb::RingSecond>& seconds = *host.seconds;
      for (; host.next < seconds.size() && seconds[host.next].to_ns() <= now_ns; ++host.next)
        Take(host, seconds[host.next]);
      if (host.next == 0) continue;  // not heard yet
      host.told.last_seen_ns = host.told.newest_ns;
      host.told.connected = now_ns - host.told.newest_ns < kGoneNs;
      const auto place = static_cast<uint32_t>(picture.hosts.size());
      picture.hosts.push_back(host.told);
      for (auto& [key, path] : host.paths) {
        path.evidence.host = place;
        path.evidence.hops = path.hops_known ? &path.hops : nullptr;
        picture.paths.push_back(path.evidence);
      }
    }
    looks_ += picture.paths.size();
    AddEvents(picture, now_ns);
    LookAtFabric(picture);
    for (const Finding& finding : findings_.Evaluate(picture)) {
      if (found_.emplace(finding.id, finding).second) order_.push_back(finding.id);
      found_[finding.id] = finding;
    }
    out_.set_pictures(out_.pictures() + 1);
  }

  void AddEvents(Picture& picture, int64_t now_ns) {
    for (; event_ < bundle_.events.size() && bundle_.events[event_].event().time_ns() <= now_ns; ++event_) {
      const pb::FleetEventOf& event = bundle_.events[event_];
      if (!ConcernsFindings(event.event().event().type())) continue;
      picture.events.push_back(HostEventOf(event.host(), event.run(), event.event()));
      picture.events.back().time_ns = event.event().time_ns();
    }
  }

  void LookAtFabric(Picture& picture) {
    const uint64_t seen = fabric_seen_ + picture.hosts.size();
    if (seen != fabric_made_) {
      looks_ += kOfFabric * picture.paths.size();
      topology_ = BuildTopology(TracesOf(picture.paths), fabric_, nic_places_);
      wiring_ = CompareWiring(topology_, fabric_);
      fabric_made_ = seen;
    }
    picture.topology = &topology_;
    picture.wiring = &wiring_;
    picture.fabric = fabric_made_;
  }

  void Notes() {
    size_t coarse = 0;
    std::vector<std::string> missing;
    for (const pb::IncidentHost& host : bundle_.head.hosts()) {
      coarse += host.source() == "store";
      if (host.source().empty()) missing.push_back(host.host());
    }
    if (coarse > 0) out_.add_notes(absl::StrCat(coarse, " hosts are known by what they told every 10 s alone"));
    if (!missing.empty())
      out_.add_notes(absl::StrCat(missing.size(), " hosts are missing, ", missing[0],
                                  " among them: what they saw is no evidence"));
    if (bundle_.damaged_bytes > 0 || bundle_.cut_off)
      out_.add_notes("the file is damaged: what is left of it is replayed");
  }

  const Bundle& bundle_;
  const FleetFile& fabric_;
  Findings findings_;
  const size_t most_looks_;
  std::map<std::string, HostNow> hosts_;
  int64_t from_ns_ = INT64_MAX, to_ns_ = INT64_MIN;
  size_t event_ = 0, looks_ = 0;
  uint64_t fabric_seen_ = 1, fabric_made_ = 0;
  NicPlaces nic_places_;
  Topology topology_;
  WiringReport wiring_;
  std::map<uint64_t, Finding> found_;
  std::vector<uint64_t> order_;
  pb::IncidentReplay out_;
};

}  // namespace

pb::IncidentReplay Replay(const Bundle& bundle, const FleetFile& fabric, const FindingRules& rules, size_t most_looks) {
  return Player(bundle, fabric, rules, most_looks).Run();
}

}  // namespace cw::fleet
