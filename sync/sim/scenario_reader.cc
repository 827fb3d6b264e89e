// SPDX-License-Identifier: Apache-2.0
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sync/sim/scenario.h"

namespace cw::sync::sim {
namespace {

constexpr size_t kMaxFaults = 20;

struct Faults {
  std::string file;
  std::vector<std::string> list;
  void Add(const toml::source_region& at, const std::string& what) {
    const uint32_t line = at.begin.line;
    list.push_back(absl::StrFormat("%s:%d: %s", file, line == 0 ? 1 : line, what));
  }
};

// One table: every key is asked for by name and range; Close complains about those that nobody asked for.
class Table {
 public:
  Table(const toml::table* table, std::string name, Faults& faults)
      : table_(table), name_(std::move(name)), faults_(faults) {}

  Table& Number(const char* key, double& out, double least, double most) {
    if (const toml::node* n = Find(key)) {
      const auto v = n->value<double>();
      if (!v || !n->is_number() || !(*v >= least && *v <= most)) {
        return Fault(*n, key, absl::StrFormat("a number from %g to %g", least, most));
      }
      out = *v;
    }
    return *this;
  }
  Table& Integer(const char* key, int& out, int least, int most) {
    if (const toml::node* n = Find(key)) {
      const auto v = n->value_exact<int64_t>();
      if (!v || *v < least || *v > most) {
        return Fault(*n, key, absl::StrFormat("a whole number from %d to %d", least, most));
      }
      out = static_cast<int>(*v);
    }
    return *this;
  }
  Table& Flag(const char* key, bool& out) {
    if (const toml::node* n = Find(key)) {
      if (!n->is_boolean()) return Fault(*n, key, "true or false");
      out = *n->value<bool>();
    }
    return *this;
  }
  Table& Text(const char* key, std::string& out) {
    if (const toml::node* n = Find(key)) {
      if (!n->is_string()) return Fault(*n, key, "a text in quotes");
      out = *n->value<std::string>();
    }
    return *this;
  }
  Table& Hosts(const char* key, std::vector<int>& out, int hosts) {
    if (const toml::node* n = Find(key)) {
      const std::string wish = absl::StrFormat("a list of host numbers from 0 to %d", hosts - 1);
      const toml::array* array = n->as_array();
      if (array == nullptr) return Fault(*n, key, wish);
      for (const toml::node& e : *array) {
        const auto v = e.value_exact<int64_t>();
        if (!v || *v < 0 || *v >= hosts) return Fault(e, key, wish);
        out.push_back(static_cast<int>(*v));
      }
    }
    return *this;
  }
  const toml::node* Find(const char* key) {
    known_.insert(key);
    return table_ == nullptr ? nullptr : table_->get(key);
  }
  Table Sub(const char* key) {
    const toml::node* n = Find(key);
    if (n != nullptr && !n->is_table()) Fault(*n, key, absl::StrFormat("a table: [%s]", key));
    return Table(n == nullptr ? nullptr : n->as_table(), absl::StrFormat("[%s]", key), faults_);
  }
  template <typename F>
  void Each(const char* key, F&& visit) {
    const toml::node* n = Find(key);
    if (n == nullptr) return;
    const toml::array* array = n->as_array();
    if (array == nullptr || !array->is_homogeneous<toml::table>()) {
      Fault(*n, key, absl::StrFormat("a list of tables: [[%s]]", key));
      return;
    }
    for (const toml::node& e : *array) visit(Table(e.as_table(), absl::StrFormat("[[%s]]", key), faults_));
  }
  Table& Fault(const toml::node& at, const char* key, const std::string& wish) {
    faults_.Add(at.source(), absl::StrFormat("%s has to be %s", key, wish));
    return *this;
  }
  void Complain(const std::string& what) {
    faults_.Add(table_ == nullptr ? toml::source_region{} : table_->source(), what);
  }
  void Close() {
    if (table_ == nullptr) return;
    for (const auto& [key, node] : *table_) {
      const std::string k(key.str());
      if (known_.count(k)) continue;
      faults_.Add(node.source(),
                  absl::StrFormat("%s knows no key \"%s\"; known: %s", name_, k, absl::StrJoin(known_, ", ")));
    }
  }

 private:
  const toml::table* table_;
  std::string name_;
  Faults& faults_;
  std::set<std::string> known_;
};

constexpr double kAny = 1e15;

void ReadClock(Table t, ClockRanges& c) {
  t.Number("offset_ns", c.offset_ns, 0, 50e9)
      .Number("drift_ppb", c.drift_ppb, 0, 100'000)
      .Number("wander_ppb", c.wander_ppb, 0, 1000)
      .Number("temperature_ppb", c.temperature_ppb, 0, 10'000)
      .Number("temperature_period_s", c.temperature_period_s, 1, 1e6)
      .Close();
}

void ReadLink(Table t, LinkSpec& l) {
  std::string stamps = "kernel";
  t.Text("stamps", stamps);
  if (stamps == "nic") {
    l.UseNicStamps();
  } else if (stamps != "kernel") {
    t.Complain(absl::StrFormat("[link] stamps has to be \"kernel\" or \"nic\", not \"%s\"", stamps));
  }
  t.Number("base_ns", l.path.base_ns, 1, 1e9)
      .Number("base_spread_ns", l.base_spread_ns, 0, 1e9)
      .Number("noise_ns", l.path.noise_ns, 0, 1e6)
      .Number("tail_ns", l.path.tail_ns, 0, 1e6)
      .Number("floor_wander_ns", l.path.floor_wander_ns, 0, 1e6)
      .Number("floor_tau_s", l.path.floor_tau_s, 0.001, 1e4)
      .Number("busy_chance", l.path.busy_chance, 0, 1)
      .Number("busy_ns", l.path.busy_ns, 0, 1e9)
      .Number("asymmetry_ns", l.asymmetry_ns, 0, 1e9)
      .Number("load", l.queue.load, 0, 0.99)
      .Number("burst_ns", l.queue.burst_ns, 1, 1e9)
      .Flag("bursty", l.queue.bursty)
      .Number("phase_s", l.queue.phase_s, 1e-4, 100)
      .Number("loss", l.loss, 0, 1)
      .Number("probes_per_s", l.probes_per_s, 1, 10'000)
      .Integer("paths", l.paths, 1, 64)
      .Flag("replies_in_turn", l.replies_in_turn)
      .Integer("short_ways", l.short_ways, 0, 64)
      .Number("short_ns", l.short_ns, 0, 1e9)
      .Number("stack_ns", l.stack_ns, 0, 1e6)
      .Close();
}

bool ReadKind(Table& t, Event& e) {
  static const std::pair<const char*, EventKind> kKinds[] = {
      {"step", EventKind::kStep},   {"suspend", EventKind::kSuspend}, {"restart", EventKind::kRestart},
      {"join", EventKind::kJoin},   {"leave", EventKind::kLeave},     {"partition", EventKind::kPartition},
      {"heal", EventKind::kHeal},   {"lie", EventKind::kLie},         {"truth", EventKind::kTruth},
      {"ramp", EventKind::kRamp},   {"load", EventKind::kLoad},       {"asymmetry", EventKind::kAsymmetry},
      {"drift", EventKind::kDrift},
  };
  std::string kind;
  t.Text("kind", kind);
  std::vector<std::string> names;
  for (const auto& [name, k] : kKinds) {
    names.push_back(name);
    if (kind == name) {
      e.kind = k;
      return true;
    }
  }
  t.Complain(absl::StrFormat("[[event]] kind has to be one of %s, not \"%s\"", absl::StrJoin(names, ", "), kind));
  return false;
}

void ReadForgery(Table& t, Event& e) {
  static const std::pair<const char*, Forgery> kForgeries[] = {
      {"identity", Forgery::kIdentity}, {"zero_bound", Forgery::kZeroBound}, {"vast_bound", Forgery::kVastBound},
      {"ahead", Forgery::kAhead},       {"invented", Forgery::kInvented},    {"mirror", Forgery::kMirror},
  };
  std::string forge;
  t.Text("forge", forge);
  if (forge.empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, f] : kForgeries) {
    names.push_back(name);
    if (forge != name) continue;
    e.forge = f;
    return;
  }
  t.Complain(absl::StrFormat("[[event]] forge has to be one of %s, not \"%s\"", absl::StrJoin(names, ", "), forge));
}

void ReadEvent(Table t, Scenario& s) {
  Event e;
  if (!ReadKind(t, e)) return;
  ReadForgery(t, e);
  t.Number("at_s", e.at_s, 0, s.seconds)
      .Hosts("hosts", e.who.hosts, s.hosts)
      .Number("share", e.who.share, 0, 1)
      .Integer("part", e.who.part, 0, 7)
      .Integer("parts", e.parts, 2, 8)
      .Integer("neighbours_of", e.who.neighbours_of, 0, s.hosts - 1)
      .Integer("count", e.who.count, 0, s.hosts)
      .Integer("most_per_host", e.who.most_per_host, 0, 64)
      .Number("ns", e.ns, -kAny, kAny)
      .Number("ppb", e.ppb, -1e9, 1e9)
      .Number("seconds", e.seconds, 0, 1e6)
      .Number("value", e.value, 0, 1)
      .Flag("noticed", e.noticed)
      .Flag("stops_clock", e.stops_clock)
      .Flag("reboot", e.reboot)
      .Flag("two_faced", e.two_faced)
      .Close();
  const bool everyone = e.kind == EventKind::kPartition || e.kind == EventKind::kHeal || e.kind == EventKind::kLoad;
  const bool somebody = !e.who.hosts.empty() || e.who.share > 0 || e.who.part >= 0 || e.who.most_per_host > 0 ||
                        (e.who.neighbours_of >= 0 && e.who.count > 0);
  if (!everyone && !somebody) {
    t.Complain("this [[event]] is about nobody: give hosts, share, part, most_per_host, or neighbours_of and count");
  }
  s.events.push_back(e);
}

void ReadExpect(Table t, Expect& e) {
  const std::pair<const char*, double*> bands[] = {
      {"p50_ns", &e.p50_ns},
      {"p99_ns", &e.p99_ns},
      {"max_ns", &e.max_ns},
      {"converge_s", &e.converge_s},
      {"reconverge_s", &e.reconverge_s},
      {"bound_coverage", &e.bound_coverage},
      {"disjoint", &e.disjoint},
      {"est_coverage", &e.est_coverage},
      {"est_ratio", &e.est_ratio},
      {"untold_s", &e.untold_s},
      {"bound_p50_ns", &e.bound_p50_ns},
      {"synchronised", &e.synchronised},
      {"liars_named", &e.liars_named},
      {"accused", &e.accused},
      {"disturbed", &e.disturbed},
      {"disturbed_epoch", &e.disturbed_epoch},
      {"jump_ns", &e.jump_ns},
      {"refused", &e.refused},
      {"victim_ns", &e.victim_ns},
      {"tai_p99_ns", &e.tai_p99_ns},
      {"tai_coverage", &e.tai_coverage},
      {"tai_known", &e.tai_known},
      {"anchors_named", &e.anchors_named},
      {"region_p99_ns", &e.region_p99_ns},
      {"nic_p99_ns", &e.nic_p99_ns},
      {"suspects_wrong", &e.suspects_wrong},
      {"suspects_named", &e.suspects_named},
  };
  for (const auto& [key, band] : bands) t.Number(key, *band, 0, kAny);
  t.Close();
}

void ReadTop(Table& t, Scenario& s) {
  std::string level = "packet";
  t.Text("name", s.name).Text("about", s.about).Text("known_miss", s.known_miss).Text("level", level);
  if (level != "packet" && level != "link") {
    t.Complain(absl::StrFormat("level has to be \"packet\" or \"link\", not \"%s\"", level));
  }
  s.packet = level == "packet";
  t.Integer("hosts", s.hosts, 2, 1'000'000)
      .Number("seconds", s.seconds, 1, 1e5)
      .Number("settle_s", s.settle_s, 0, 1e5)
      .Number("grace_s", s.grace_s, 0, 1e5)
      .Integer("seeds", s.seeds, 1, 10'000)
      .Number("round_s", s.round_s, 0.01, 10)
      .Number("glance_s", s.glance_s, 0, 10)
      .Number("measure_s", s.measure_s, 0.01, 100)
      .Number("old_share", s.old_share, 0, 1)
      .Hosts("victims", s.victims, s.hosts);
  if (s.name.empty()) t.Complain("a scenario needs a name");
  if (s.about.empty()) t.Complain("a scenario needs about = \"what it shows\"");
  if (s.settle_s >= s.seconds) t.Complain("settle_s has to be less than seconds");
  if (s.packet && s.hosts > 64) t.Complain("at most 64 hosts with level = \"packet\"; use level = \"link\"");
}

void ReadRest(Table& t, Scenario& s) {
  ReadClock(t.Sub("clock"), s.clock);
  ReadLink(t.Sub("link"), s.link);
  Table sw = t.Sub("switches");
  sw.Integer("leaves", s.switches.leaves, 1, 64)
      .Integer("spines", s.switches.spines, 1, 64)
      .Number("hop_ns", s.switches.hop_ns, 0, 1e6)
      .Close();
  Table nics = t.Sub("nics");
  nics.Integer("per_host", s.nics.per_host, 0, 16)
      .Number("drift_ppb", s.nics.drift_ppb, 0, 100'000)
      .Number("wander_ppb", s.nics.wander_ppb, 0, 1000)
      .Number("read_ns", s.nics.read_ns, 1, 1e6)
      .Number("read_noise_ns", s.nics.read_noise_ns, 0, 1e6)
      .Number("reads_per_s", s.nics.reads_per_s, 0.1, 1000)
      .Close();
  t.Each("region", [&](Table r) {
    Region region;
    r.Integer("from", region.from, 0, s.hosts)
        .Integer("to", region.to, 0, s.hosts)
        .Number("delay_ns", region.delay_ns, 0, 1e9)
        .Number("asymmetry_ns", region.asymmetry_ns, -1e9, 1e9)
        .Close();
    s.regions.push_back(region);
  });
  t.Each("event", [&](Table e) { ReadEvent(std::move(e), s); });
  t.Each("anchor", [&](Table a) {
    AnchorSpec anchor;
    a.Hosts("hosts", anchor.hosts, s.hosts)
        .Number("from_s", anchor.from_s, 0, 1e9)
        .Number("to_s", anchor.to_s, 0, 1e9)
        .Number("error_ns", anchor.error_ns, -kAny, kAny)
        .Number("ppb", anchor.ppb, -1e6, 1e6)
        .Number("noise_ns", anchor.noise_ns, 0, 1e9)
        .Number("bound_ns", anchor.bound_ns, 1, 1e12)
        .Flag("bad", anchor.bad)
        .Close();
    if (anchor.hosts.empty()) a.Complain("this [[anchor]] is on no host: give hosts = [0]");
    s.anchors.push_back(anchor);
  });
  ReadExpect(t.Sub("expect"), s.expect);
}

}  // namespace

void LinkSpec::UseNicStamps() {
  path.noise_ns = 8;
  path.tail_ns = 4;
  path.floor_wander_ns = 3;
  path.busy_chance = 0;
  stack_ns = 0;
  nic_stamps = true;
}

absl::StatusOr<Scenario> ParseScenario(const std::string& text, const std::string& file) {
  toml::parse_result parsed = toml::parse(text, file);
  if (!parsed) {
    const toml::parse_error& e = parsed.error();
    return absl::InvalidArgumentError(
        absl::StrFormat("%s:%d: %s", file, e.source().begin.line, std::string(e.description())));
  }
  Faults faults{file, {}};
  Scenario s;
  s.file = file;
  Table top(&parsed.table(), "a scenario", faults);
  ReadTop(top, s);
  if (faults.list.empty()) {  // the rest is checked against these
    ReadRest(top, s);
    top.Close();
    std::stable_sort(s.events.begin(), s.events.end(), [](const Event& a, const Event& b) { return a.at_s < b.at_s; });
  }
  if (faults.list.empty()) return s;
  if (faults.list.size() > kMaxFaults) faults.list.resize(kMaxFaults);
  return absl::InvalidArgumentError(absl::StrJoin(faults.list, "\n"));
}

absl::StatusOr<Scenario> ReadScenario(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrFormat("cannot read %s: is the path right?", path));
  std::ostringstream text;
  text << file.rdbuf();
  return ParseScenario(text.str(), path);
}

}  // namespace cw::sync::sim
