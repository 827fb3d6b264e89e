// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/rules/rules_file.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "userspace/config/reader.h"
#include "userspace/fleet/rules/example_toml.h"

namespace cw::fleet {
namespace {

using config::TextRule;
using config::Visitor;

const config::DurationRange kHold{absl::ZeroDuration(), absl::Hours(24)};

constexpr char kHead[] =
    "# Rules of cwfleetd's findings (rules_file). What is commented out is the default. cwfleetd --test-rules FILE "
    "runs\n"
    "# the tests at the end.\n";

constexpr char kTests[] = R"(
# What groups of hosts were promised; missed, it is a finding. Groups are names of hosts (patterns) or of racks; without
# to_hosts and to_racks it is among themselves. A promise is over all probes from one group to the other.
# [[sla]]
# name = "rack A"
# racks = ["A"]            # or hosts = ["gpu-a-*"]
# to_racks = []            # or to_hosts
# p99_delay = "8us"        # one way, at most
# loss = 0.001             # share of probes, at most

# Tests, in a fabric of three leaves, two spines and nine hosts. A fault lasts for so long (`lasts`), or comes `flaps`
# times; each finding that opens stands in `expect`. `loss` is a grey link's, `queue` the delay of congestion and incast.
[[test]]
name = "all is well"
fault = "none"
lasts = "120s"
expect = []
[[test]]
name = "a dead link is a warning"
fault = "link dead"
lasts = "5s"
expect = ["link dead: warning"]
[[test]]
name = "a dead switch is critical, and its links are no findings of their own"
fault = "switch dead"
lasts = "5s"
expect = ["switch dead: critical"]
[[test]]
name = "a dead NIC is critical"
fault = "NIC down"
lasts = "5s"
expect = ["NIC down: critical"]
[[test]]
name = "8 flaps within an hour are not too many"
fault = "link flapping"
flaps = 8
expect = ["link dead: warning"]
[[test]]
name = "9 are"
fault = "link flapping"
flaps = 9
expect = ["link dead: warning", "link flapping: warning"]
[[test]]
name = "0.1 % of loss is nobody's fault"
fault = "link grey"
loss = 0.001
lasts = "60s"
expect = []
[[test]]
name = "1 % is"
fault = "link grey"
loss = 0.01
lasts = "60s"
expect = ["link grey: warning"]
[[test]]
name = "a queue of 5 us is work"
fault = "congestion"
queue = "5us"
lasts = "60s"
expect = []
[[test]]
name = "a queue of 100 us on all paths over a link is congestion"
fault = "congestion"
queue = "100us"
lasts = "60s"
expect = ["congestion: info"]
[[test]]
name = "a promise that is not kept is a warning"
fault = "SLA missed"
lasts = "60s"
expect = ["SLA missed: warning"]
[[test]]
name = "a class that is held up on the way to one NIC is one finding"
fault = "class paused"
lasts = "10s"
expect = ["class paused: warning"]
[[test]]
name = "one NIC of nine with another MTU is a warning"
fault = "configuration"
lasts = "60s"
expect = ["configuration: warning"]
[[test]]
name = "a job that stands for want of a process is told, and is nobody's alarm"
fault = "not the network"
lasts = "60s"
expect = ["not the network: info"]
[[test]]
name = "NICs that reach nothing of each other are one finding"
fault = "rail down"
lasts = "10s"
expect = ["rail down: critical"]
[[test]]
name = "dead paths over switches that answer no trace are one finding"
fault = "paths dead"
lasts = "20s"
expect = ["paths dead: warning"]
[[test]]
name = "a host that is too busy to measure is a warning"
fault = "host too busy"
lasts = "60s"
expect = ["host too busy: warning"]
[[test]]
name = "a NIC that its own agent cannot measure is a warning"
fault = "NIC not measured"
lasts = "60s"
expect = ["NIC not measured: warning"]
[[test]]
name = "a link that does not carry packets of full size is critical"
fault = "packet size"
lasts = "60s"
expect = ["packet size: critical"]
[[test]]
name = "a host whose reports are refused is a warning"
fault = "reports refused"
lasts = "60s"
expect = ["reports refused: warning"]
[[test]]
name = "a short queue is a burst"
fault = "congestion"
queue = "100us"
lasts = "10s"
expect = []
)";

std::vector<std::string> FaultWords() {
  std::vector<std::string> words = {"none"};
  for (int c = 1; c <= kFleetCauses; ++c) words.emplace_back(CauseName(static_cast<Cause>(c)));
  return words;
}

void WalkThresholds(Visitor& v, FindingRules& r) {
  v.BeginTable("thresholds", "");
  const auto many = v.Integer("flaps_per_hour", static_cast<int64_t>(r.many_flaps), {1, 60},
                              "A link that died more often within an hour flaps.");
  r.many_flaps = static_cast<size_t>(many);
  r.flaps_rest = v.Duration("flaps_rest", r.flaps_rest, kHold, "It flaps no more after so long without a death.");
  r.least_loss =
      v.Real("grey_loss", r.least_loss, {0.0005, 0.5}, "Share of probes that a grey link loses at least ...");
  r.most_loss = v.Real("grey_loss_most", r.most_loss, {0.5, 0.99}, "... and at most; what loses more is dead.");
  const absl::Duration floor =
      v.Duration("congestion_floor", absl::Nanoseconds(r.queue_floor_ns), {absl::Microseconds(1), absl::Seconds(1)},
                 "A path queues when its typical queueing delay is above this ...");
  r.queue_floor_ns = absl::ToDoubleNanoseconds(floor);
  r.queue_over_base =
      v.Real("congestion_over_base", r.queue_over_base, {0, 100}, "... and above so many times its base delay.");
  r.host_silent = v.Duration("host_silent", r.host_silent, kHold,
                             "A host whose NICs are dead is down when its agent was silent for so long.");
  r.host_mute = v.Duration("host_mute", r.host_mute, kHold,
                           "It is down, too, when its agent said nothing since they all died, for so long.");
  r.agent_gone =
      v.Duration("agent_gone", r.agent_gone, kHold, "An agent is gone when it was not connected for so long.");
  r.clock_off = v.Duration("clock_off", r.clock_off, kHold,
                           "A clock is wrong when it was not synchronised for so long, and most are.");
  const absl::Duration bound =
      v.Duration("clock_bound", absl::Nanoseconds(r.clock_bound_ns), {absl::Microseconds(1), absl::Seconds(10)},
                 "One whose bound is wider than this is not.");
  r.clock_bound_ns = absl::ToDoubleNanoseconds(bound);
  v.EndTable();
}

void WalkCause(Visitor& v, CauseRule& rule) {
  const std::vector<std::string> words = {"info", "warning", "critical"};
  rule.severity = static_cast<Severity>(v.Choice("severity", static_cast<size_t>(rule.severity), words, ""));
  rule.summary = v.Text("summary", rule.summary, TextRule::kFree, "");
  rule.open_after = v.Duration("open_after", rule.open_after, kHold, "");
  rule.end_after = v.Duration("end_after", rule.end_after, kHold, "");
}

std::string KeyOf(Cause cause) { return absl::AsciiStrToLower(absl::StrReplaceAll(CauseName(cause), {{" ", "_"}})); }

void WalkTest(Visitor& v, RuleTest& test) {
  test.name = v.Text("name", "", TextRule::kFree, "");
  const size_t fault = v.Choice("fault", 0, FaultWords(), "");
  test.none = fault == 0;
  if (fault != 0) test.fault = static_cast<Cause>(fault);
  test.lasts = v.Duration("lasts", test.lasts, {absl::ZeroDuration(), absl::Hours(1)}, "");
  test.flaps = static_cast<int>(v.Integer("flaps", test.flaps, {1, 100}, ""));
  test.loss = v.Real("loss", test.loss, {0, 1}, "");
  test.queue = v.Duration("queue", test.queue, {absl::ZeroDuration(), absl::Seconds(1)}, "");
  test.expect = v.Texts("expect", {}, TextRule::kFree, "");
  test.summary = v.Text("summary", "", TextRule::kFree, "");
}

void WalkSla(Visitor& v, SlaRule& sla) {
  sla.name = v.Text("name", sla.name, TextRule::kFree, "");
  sla.from.hosts = v.Texts("hosts", sla.from.hosts, TextRule::kFree, "");
  sla.from.racks = v.Texts("racks", sla.from.racks, TextRule::kFree, "");
  sla.to.hosts = v.Texts("to_hosts", sla.to.hosts, TextRule::kFree, "");
  sla.to.racks = v.Texts("to_racks", sla.to.racks, TextRule::kFree, "");
  sla.p99_delay = v.Duration("p99_delay", sla.p99_delay, {absl::ZeroDuration(), absl::Seconds(10)}, "");
  sla.loss = v.Real("loss", sla.loss, {0, 1}, "");
}

void WalkRules(Visitor& v, Rules& rules) {
  WalkThresholds(v, rules.findings);
  v.BeginTable("cause",
               "Each cause: how urgent it is (info, warning, critical), what is said ({scope}: the place), how long it "
               "has to hold, and to be gone.");
  for (int c = 1; c <= kFleetCauses; ++c) {
    const auto cause = static_cast<Cause>(c);
    v.BeginTable(KeyOf(cause), "");
    WalkCause(v, rules.findings.causes[static_cast<size_t>(c)]);
    v.EndTable();
  }
  v.EndTable();
  rules.slas.resize(v.BeginArray("sla", rules.slas.size(), ""));
  for (size_t i = 0; i < rules.slas.size(); ++i) {
    v.BeginElement(i);
    WalkSla(v, rules.slas[i]);
    v.EndElement();
  }
  v.EndArray();
  rules.tests.resize(v.BeginArray("test", rules.tests.size(), ""));
  for (size_t i = 0; i < rules.tests.size(); ++i) {
    rules.tests[i].at = v.BeginElement(i);
    WalkTest(v, rules.tests[i]);
    v.EndElement();
  }
  v.EndArray();
}

void CheckRules(const Rules& rules, const config::Complain& complain) {
  for (int c = 1; c <= kFleetCauses; ++c) {
    const CauseRule& rule = rules.findings.causes[static_cast<size_t>(c)];
    const std::string key = absl::StrCat("cause.", KeyOf(static_cast<Cause>(c)), ".summary");
    if (!absl::StrContains(rule.summary, "{scope}")) complain(key, "the summary has to name the place: write {scope}");
    if (rule.summary.size() > 200) complain(key, "at most 200 bytes");
  }
  constexpr size_t kMostSlas = 64;  // each is judged over all its hosts' paths
  if (rules.slas.size() > kMostSlas) complain("sla", absl::StrCat("at most ", kMostSlas, " of them"));
  std::set<std::string> names;
  for (size_t i = 0; i < rules.slas.size(); ++i) {
    const SlaRule& sla = rules.slas[i];
    const std::string at = absl::StrCat("sla[", i, "].");
    if (sla.name.empty() || sla.name.size() > 64) complain(at + "name", "a name of 1 to 64 bytes, such as \"rack A\"");
    if (!names.insert(sla.name).second) complain(at + "name", "another sla has this name");
    if (sla.p99_delay == absl::ZeroDuration() && sla.loss == 0)
      complain(at + "p99_delay", "promise something: p99_delay, such as \"8us\", or loss, such as 0.001");
  }
  for (size_t i = 0; i < rules.tests.size(); ++i) {
    if (rules.tests[i].name.empty()) complain(absl::StrCat("test[", i, "].name"), "a test needs a name");
  }
}

}  // namespace

absl::StatusOr<Rules> ReadRules(absl::string_view text, absl::string_view file) {
  Rules rules;
  const absl::Status status = config::ReadToml(
      text, file, [&](Visitor& v) { WalkRules(v, rules); }, [&](const config::Complain& c) { CheckRules(rules, c); });
  if (!status.ok()) return status;
  return rules;
}

std::string DefaultRulesToml() {
  Rules rules;
  ExampleToml example(kHead);
  WalkRules(example, rules);
  return example.Take() + kTests;
}

}  // namespace cw::fleet
