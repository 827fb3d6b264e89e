// SPDX-License-Identifier: Apache-2.0
// The group's secrets: read at the start, changed while the agent runs. No secret gets into a message.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/agent/agent.h"

namespace cw::agent {
namespace {

absl::StatusOr<probe::KeyRing> LoadKeys(const config::KeysConfig& keys) {
  probe::KeyRing ring;
  const auto load = [&](const std::string& file, uint8_t id) -> absl::Status {
    if (file.empty()) return absl::OkStatus();
    absl::StatusOr<probe::GroupSecret> secret = probe::GroupSecret::FromFile(file);
    return secret.ok() ? ring.Set(id, *std::move(secret)) : secret.status();
  };
  absl::Status status = load(keys.secret_file, 0);
  status.Update(load(keys.second_secret_file, 1));
  if (status.ok() && !keys.second_secret_file.empty()) status = ring.SendWith(static_cast<uint8_t>(keys.send_key_id));
  if (!status.ok()) return status;
  return ring;
}

std::vector<uint32_t> AcceptedIds(const probe::KeyRing& ring) {
  std::vector<uint32_t> ids;
  for (uint8_t id = 0; id < 2; ++id) {
    if (ring.has(id)) ids.push_back(id);
  }
  return ids;
}

}  // namespace

absl::Status Agent::OpenKeys() {
  absl::StatusOr<probe::KeyRing> ring = LoadKeys(options_.config.keys);
  if (!ring.ok()) return ring.status();
  keys_ = *std::move(ring);
  return absl::OkStatus();
}

absl::StatusOr<probe::KeyRing> Agent::CheckedKeys(const config::KeysConfig& keys) const {
  absl::StatusOr<probe::KeyRing> ring = LoadKeys(keys);
  if (!ring.ok()) return ring.status();
  if (absl::Status status = probe::CheckChange(keys_, *ring); !status.ok()) return status;
  return ring;
}

// A ring that was checked.
absl::Status Agent::TakeKeys(probe::KeyRing ring) {
  const bool same = keys_ == ring;
  if (!same) {
    keys_ = std::move(ring);
    if (absl::Status status = engine_->KeysChanged(); !status.ok()) return status;
    keys_changed_ns_ = MonotonicNs();
  }
  const std::string now = keys_.empty() ? "there are none"
                                        : absl::StrCat("sends with key id ", int{keys_.send_id()}, ", accepts ",
                                                       absl::StrJoin(AcceptedIds(keys_), " and "));
  Log({.type = "keys",
       .severity = telemetry::Severity::kNotice,
       .text = absl::StrCat(same ? "keys were read again and are the same: " : "keys changed: ", now),
       .evidence = {{"send_key_id", absl::StrCat(int{keys_.send_id()})},
                    {"accepted", absl::StrJoin(AcceptedIds(keys_), ",")}}});
  return absl::OkStatus();
}

void Agent::AddKeys(api::v1::StatusReply& reply, int64_t now_ns) const {
  if (keys_.empty()) return;
  api::v1::KeyStatus* out = reply.mutable_keys();
  out->set_send_id(keys_.send_id());
  for (const uint32_t id : AcceptedIds(keys_)) out->add_accepted(id);
  if (keys_changed_ns_ != 0) out->set_changed_ago_s(static_cast<double>(now_ns - keys_changed_ns_) / 1e9);
}

}  // namespace cw::agent
