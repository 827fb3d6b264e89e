// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/group_keys.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

absl::Status GroupKeys::Open(const config::KeysConfig& keys) {
  absl::StatusOr<probe::KeyRing> ring = LoadKeys(keys);
  if (!ring.ok()) return ring.status();
  ring_ = *std::move(ring);
  return absl::OkStatus();
}

absl::StatusOr<probe::KeyRing> GroupKeys::Check(const config::KeysConfig& keys) const {
  absl::StatusOr<probe::KeyRing> ring = LoadKeys(keys);
  if (!ring.ok()) return ring.status();
  if (absl::Status status = probe::CheckChange(ring_, *ring); !status.ok()) return status;
  return ring;
}

absl::Status GroupKeys::Take(probe::KeyRing ring, absl::FunctionRef<absl::Status()> changed) {
  const bool same = in_use_ && ring_ == ring;
  if (!same) {
    in_use_ = false;
    ring_ = std::move(ring);
    if (absl::Status status = changed(); !status.ok()) return status;
    in_use_ = true;
    changed_ns_ = monotonic_.NowNs();
  }
  const std::string now = ring_.empty() ? "there are none"
                                        : absl::StrCat("sends with key id ", int{ring_.send_id()}, ", accepts ",
                                                       absl::StrJoin(AcceptedIds(ring_), " and "));
  events_.Log({.type = "keys",
               .severity = telemetry::Severity::kNotice,
               .text = absl::StrCat(same ? "keys were read again and are the same: " : "keys changed: ", now),
               .evidence = {{"send_key_id", absl::StrCat(int{ring_.send_id()})},
                            {"accepted", absl::StrJoin(AcceptedIds(ring_), ",")}}});
  return absl::OkStatus();
}

void GroupKeys::AddTo(cwfabric::v1::StatusReply& reply) const {
  if (ring_.empty()) return;
  cwfabric::v1::KeyStatus* out = reply.mutable_keys();
  out->set_send_id(ring_.send_id());
  for (const uint32_t id : AcceptedIds(ring_)) out->add_accepted(id);
  if (changed_ns_ != 0) out->set_changed_ago_s(static_cast<double>(monotonic_.NowNs() - changed_ns_) / 1e9);
}

}  // namespace cw::agent
