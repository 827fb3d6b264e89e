// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/fleetd_config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/config/reader.h"
#include "userspace/config/schema.h"
#include "userspace/fleet/alerts/http_post.h"
#include "userspace/fleet/rules/example_toml.h"

namespace cw::fleet {
namespace {

using config::TextRule;
using config::Visitor;

void Walk(Visitor& v, FleetdConfig& c) {
  const config::DurationRange life{absl::Hours(1), absl::Hours(24 * 3660)};
  c.instance = v.Text("instance", c.instance, TextRule::kFree, "Name of this instance; empty for the host's name.");
  c.listen = v.Texts("listen", c.listen, TextRule::kTcp, "Where agents and cwctl connect to, always with mutual TLS.");
  c.connections_per_address =
      static_cast<int>(v.Integer("connections_per_address", c.connections_per_address, {1, 100'000},
                                 "Connections of one address at most; more where hosts come by one, as behind NAT."));
  c.tls_cert = v.Text("tls_cert", c.tls_cert, TextRule::kPath, "This host's certificate and its chain, PEM.");
  c.tls_key = v.Text("tls_key", c.tls_key, TextRule::kPath, "Its key, PEM, readable by its owner only.");
  c.tls_ca = v.Text("tls_ca", c.tls_ca, TextRule::kPath, "Authorities of hosts' and users' certificates, PEM.");
  c.tls_crl = v.Text("tls_crl", c.tls_crl, TextRule::kPath, "Their lists of revoked certificates; empty for none.");
  c.store = v.Text("store", c.store, TextRule::kPath, "The SQLite file that keeps everything.");
  c.acts_file = v.Text("acts_file", c.acts_file, TextRule::kAutoPath,
                       "Where it is kept who changed what, one JSON object a line, 8 MiB and as much again before it; "
                       "\"auto\" is acts.jsonl, beside the store, empty is nowhere.");
  c.fabric_file = v.Text("fabric_file", c.fabric_file, TextRule::kPath,
                         "Names of switches and cables as planned (docs/fleet.md); empty for none.");
  c.rules_file = v.Text("rules_file", c.rules_file, TextRule::kPath,
                        "Severities, thresholds and wording of findings (cwfleetd --default-rules); empty for the "
                        "defaults.");
  c.keep_fine = v.Duration("keep_fine", c.keep_fine, life, "How long paths are kept at 10 s.");
  c.keep_minutes = v.Duration("keep_minutes", c.keep_minutes, life, "How long at 60 s.");
  c.keep_coarse = v.Duration("keep_coarse", c.keep_coarse, life, "How long at 300 s.");
  c.keep_events = v.Duration("keep_events", c.keep_events, life, "How long events are kept.");
  c.store_gib = static_cast<int>(v.Integer("store_gib", c.store_gib, {1, 65536},
                                           "GiB that paths may take; the oldest of the finest goes first, and it is "
                                           "said before."));
  v.BeginTable("alerts", "Who is told of findings.");
  c.alerts.alertmanagers =
      v.Texts("alertmanager", c.alerts.alertmanagers, TextRule::kFree,
              "Alertmanagers, all of them, for example \"http://127.0.0.1:9093\"; empty for none.");
  c.alerts.webhooks = v.Texts("webhooks", c.alerts.webhooks, TextRule::kFree,
                              "URLs that each finding's beginning and end is posted to as JSON; empty for none.");
  c.runbook_url = v.Text("runbook_url", c.runbook_url, TextRule::kFree,
                         "What to do, a page of yours; the cause is appended, as in #link-dead. Empty for none.");
  v.EndTable();
  v.BeginTable("incidents", "What all hosts involved saw around a failure, kept as files (docs/fleet.md).");
  const config::DurationRange half{absl::Seconds(1), absl::Minutes(25)};
  c.incident_dir =
      v.Text("dir", c.incident_dir, TextRule::kAutoPath, "Where; \"auto\" is incidents, beside the store.");
  c.incident_severity = v.Choice("severity", c.incident_severity, {"info", "warning", "critical", "none"},
                                 "One is taken by itself of findings at least so urgent, and of collectives that stand "
                                 "(none: of nothing).");
  c.incident_before = v.Duration("before", c.incident_before, half, "How long before a finding it begins ...");
  c.incident_after = v.Duration("after", c.incident_after, half, "... and how long behind its beginning it ends.");
  c.incident_gib = static_cast<int>(v.Integer("gib", c.incident_gib, {1, 65536},
                                              "GiB that they may take, 200 of them at most; the oldest goes first."));
  v.EndTable();
  v.BeginTable("metrics", "The service's own figures, and the list of all hosts' metrics, for Prometheus.");
  c.metrics_listen = v.Text("listen", c.metrics_listen, TextRule::kListen,
                            "Where /metrics and /sd are served, without a password: \"none\", \"unix:/PATH\" or "
                            "\"127.0.0.1:9481\".");
  v.EndTable();
}

constexpr size_t kMostReceivers = 16;

void CheckUrls(const std::string& key, const std::vector<std::string>& urls, const config::Complain& complain) {
  if (urls.size() > kMostReceivers) complain(key, absl::StrFormat("at most %d receivers", kMostReceivers));
  for (const std::string& url : urls) {
    if (const absl::Status status = CheckUrl(url); !status.ok())
      complain(key, absl::StrCat("\"", url, "\" ", std::string(status.message())));
  }
}

void Check(const FleetdConfig& c, const config::Complain& complain) {
  if (c.listen.empty()) complain("listen", "nobody could connect; leave it out for 0.0.0.0:9480");
  if (c.metrics_listen == "auto") complain("metrics.listen", "write \"none\", or where to listen");
  if (c.incident_dir.empty()) complain("incidents.dir", "there has to be a folder; leave it at \"auto\"");
  if (c.store.empty()) complain("store", "there has to be a file; leave it out for /var/lib/cwfabric-fleet/fleet.db");
  CheckUrls("alerts.alertmanager", c.alerts.alertmanagers, complain);
  CheckUrls("alerts.webhooks", c.alerts.webhooks, complain);
  if (!c.runbook_url.empty()) CheckUrls("alerts.runbook_url", {c.runbook_url}, complain);
  for (const auto& [key, file] : {std::pair{"tls_cert", &c.tls_cert}, {"tls_key", &c.tls_key}, {"tls_ca", &c.tls_ca}}) {
    if (file->empty())
      complain("", absl::StrFormat("%s is missing: hosts and people are known by their certificates alone; see cwctl "
                                   "certs --help",
                                   key));
  }
}

}  // namespace

Retention FleetdConfig::KeepRules() const {
  Retention rules;
  const uint64_t bytes = static_cast<uint64_t>(store_gib) << 30;
  rules.tiers = {{{keep_fine, bytes / 2}, {keep_minutes, bytes / 4}, {keep_coarse, bytes / 4}}};
  rules.events = {keep_events, 0};
  return rules;
}

std::string FleetdConfig::BesideStore(const std::string& name) const {
  const size_t slash = store.rfind('/');
  return slash == std::string::npos ? name : store.substr(0, slash + 1) + name;
}

std::string FleetdConfig::IncidentDir() const {
  return incident_dir == "auto" ? BesideStore("incidents") : incident_dir;
}

std::string FleetdConfig::ActsFile() const { return acts_file == "auto" ? BesideStore("acts.jsonl") : acts_file; }

absl::StatusOr<FleetdConfig> ParseFleetdConfig(absl::string_view text, absl::string_view file) {
  FleetdConfig config;
  const absl::Status status = config::ReadToml(
      text, file, [&](Visitor& v) { Walk(v, config); }, [&](const config::Complain& c) { Check(config, c); });
  if (!status.ok()) return status;
  return config;
}

std::string ExampleFleetdToml() {
  FleetdConfig config;
  ExampleToml example("# cwfleetd: the fleet service of cwfabric. What is commented out is the default.\n");
  Walk(example, config);
  return example.Take();
}

}  // namespace cw::fleet
