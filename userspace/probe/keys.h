// SPDX-License-Identifier: Apache-2.0
//
// Probe keys. All members of a group hold one secret; each ordered pair of addresses has a key of its own derived from
// it (HMAC-SHA256, RFC 2104, FIPS 180-4), so that a key binds direction and addresses. Two secrets may live at once:
// members are given the new one first, send with it later, and drop the old one last.
// Secrets are wiped when their holder goes, and appear in no message or log. Thread rule: as ordinary values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "maps/abi.h"
#include "userspace/model/addr.h"
#include "userspace/probe/packet.h"

namespace cw::probe {

class GroupSecret {
 public:
  // content: an even number of at least 32 hex digits (white space at the end is ignored), or else at least 16 raw
  // bytes, taken as they are. InvalidArgument: too short.
  static absl::StatusOr<GroupSecret> FromBytes(absl::string_view content);
  // Reads at most 4 KiB. PermissionDenied: the file may be read or written by others.
  static absl::StatusOr<GroupSecret> FromFile(const std::string& path);

  GroupSecret(GroupSecret&& other) noexcept;
  GroupSecret& operator=(GroupSecret&& other) noexcept;
  GroupSecret(const GroupSecret&) = delete;
  GroupSecret& operator=(const GroupSecret&) = delete;
  ~GroupSecret();

  // The key of packets that go from `from` to `to`.
  MacKey Derive(const Addr& from, const Addr& to, uint8_t key_id) const;
  bool operator==(const GroupSecret& other) const;

 private:
  explicit GroupSecret(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}
  void Wipe();
  std::vector<uint8_t> bytes_;
};

// The one or two live secrets of a group, by key id.
class KeyRing {
 public:
  // key_id 0 or 1; replaces what was there. The first secret set is also the one to send with.
  absl::Status Set(uint8_t key_id, GroupSecret secret);
  absl::Status SendWith(uint8_t key_id);  // FailedPrecondition: no such secret
  absl::Status Drop(uint8_t key_id);      // FailedPrecondition: it is the one that is sent with

  // Wipe the result (WipeKeys) when done.
  cw_pair_keys Derive(const Addr& local, const Addr& remote) const;
  uint8_t send_id() const { return send_id_; }
  bool has(uint8_t key_id) const { return key_id < 2 && !secrets_[key_id].empty(); }
  bool operator==(const KeyRing& other) const { return secrets_ == other.secrets_ && send_id_ == other.send_id_; }
  bool empty() const { return secrets_[0].empty() && secrets_[1].empty(); }

 private:
  friend absl::Status CheckChange(const KeyRing& from, const KeyRing& to);
  std::array<std::vector<GroupSecret>, 2> secrets_;  // each none or one
  uint8_t send_id_ = 0;
};

// Whether a running agent may go from one to the other without losing a probe: what it sends with now has to stay
// accepted, unchanged. FailedPrecondition: what to do instead. Pure.
absl::Status CheckChange(const KeyRing& from, const KeyRing& to);

void WipeKeys(cw_pair_keys* keys);

}  // namespace cw::probe
