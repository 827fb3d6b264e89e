// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/config_in_force.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cw::agent {
namespace {

constexpr size_t kNamed = 6;  // changes in an event's text; all are in its evidence

bool IsTable(const std::string& key) { return key == "peer" || key == "nic" || key == "scope"; }

// Tables are long.
std::string TextOf(const config::Change& change) {
  if (IsTable(change.key)) return absl::StrCat("the [[", change.key, "]] tables");
  return absl::StrCat(change.key, " ", change.from, " → ", change.to);
}

std::string Named(std::vector<std::string> texts) {
  const size_t all = texts.size();
  if (all > kNamed) texts.resize(kNamed);
  return absl::StrCat(absl::StrJoin(texts, ", "), all > kNamed ? absl::StrCat(" and ", all - kNamed, " more") : "");
}

}  // namespace

void ConfigInForce::Begin(const config::Config& config, int64_t now_ns) {
  loaded_ns_ = now_ns;
  fingerprint_ = config::Fingerprint(config);
}

void ConfigInForce::Reloaded(const config::Config& config, const std::vector<config::Change>& changes, int64_t now_ns) {
  Begin(config, now_ns);
  waiting_.clear();
  std::vector<std::string> taken;
  telemetry::Event event{.type = "config", .severity = telemetry::Severity::kNotice};
  for (const config::Change& change : changes) {
    if (change.live) {
      taken.push_back(TextOf(change));
    } else {
      waiting_.push_back(change.key);
    }
    if (!IsTable(change.key))
      event.evidence.push_back(
          {change.key, absl::StrCat(change.from, " → ", change.to, change.live ? "" : ", at the next start")});
  }
  event.text =
      changes.empty() ? "the configuration was read again and is the same" : "the configuration was read again";
  if (!taken.empty()) absl::StrAppend(&event.text, ": ", Named(taken));
  if (!waiting_.empty()) absl::StrAppend(&event.text, "; waits for a restart: ", Named(waiting_));
  events_.Log(std::move(event));
}

void ConfigInForce::NotTaken(const std::string& key, const absl::Status& why) {
  waiting_.push_back(key);
  events_.Log(
      {.type = "config",
       .severity = telemetry::Severity::kAlert,
       .text = absl::StrCat(
           IsTable(key) ? absl::StrCat("the [[", key, "]] tables") : absl::StrCat("[", key, "]"),
           " could not be taken, all else is; reload again, or restart the agent: ", std::string(why.message()))});
}

void ConfigInForce::AddTo(::cwfabric::v1::StatusReply& reply, int64_t now_ns) const {
  ::cwfabric::v1::ConfigStatus* out = reply.mutable_config();
  out->set_fingerprint(fingerprint_);
  out->set_loaded_ago_s(static_cast<double>(now_ns - loaded_ns_) / 1e9);
  for (const std::string& key : waiting_) out->add_waiting(key);
}

}  // namespace cw::agent
