// SPDX-License-Identifier: Apache-2.0
//
// What samples name by number: paths and hop lists. A host invents as many as it likes, so it has a bound of each. A
// row says until when samples use it, with up to a day on top, so that it is written once a day. What the ladder has
// left behind in all tiers is used by nothing that is kept, and goes: first where its host needs the room, else with
// retention. Threads: one at a time; whoever writes holds a transaction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/fleet/store/sqlite/database.h"
#include "userspace/fleet/store/sqlite/host_cache.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

struct NameBounds {
  int64_t paths = 0, hop_lists = 0;  // of one host
};

class NameTables {
 public:
  static constexpr size_t kMostCached = 1 << 20;       // of all hosts: 100 MB of paths, 30 MB of hop lists
  static constexpr int kUnusedAtOnce = 5000;           // a tenth of a second
  static constexpr int64_t kUntoldGraceS = 2 * 86400;  // longer than a spool holds what refers to a list it told before

  NameTables(Database& db, const NameBounds& bounds) : db_(db), bounds_(bounds) {}

  // The path's number for a sample of this time. Nothing: its host has as many as are kept, all of them in use.
  absl::StatusOr<std::optional<uint64_t>> PathId(int64_t host, const PathKey& key, int64_t time_ns);
  absl::StatusOr<absl::flat_hash_map<uint64_t, PathKey>> Paths(int64_t host);

  // False: not kept, as above. Told now; used by no sample yet.
  absl::StatusOr<bool> AddHops(int64_t host, const HopList& list, int64_t now_ns);
  absl::Status UseHops(int64_t host, uint64_t id, int64_t time_ns);  // 0, and one that is not there: nothing to do
  absl::StatusOr<std::optional<HopList>> Hops(int64_t host, uint64_t id);
  absl::StatusOr<std::vector<HopList>> AllHops(int64_t host);  // as many as are kept; the last used first

  absl::Status DropUnused(int64_t now_ns);  // some, of all hosts
  void Forget();                            // after a rollback: some that are known may not exist

 private:
  struct PathHash {
    size_t operator()(const PathKey& k) const { return absl::HashOf(k.local, k.remote, k.udp_port, k.reverse); }
  };
  struct Path {
    uint64_t id = 0;
    int64_t used_s = 0;
  };
  struct Row {
    int64_t host = 0;
    uint64_t id = 0;
  };
  static constexpr int64_t kAbsent = -1;

  absl::StatusOr<std::optional<Path>> FindPath(int64_t host, const PathKey& key);
  absl::StatusOr<std::optional<Path>> NewPath(int64_t host, const PathKey& key, int64_t time_ns);
  absl::StatusOr<int64_t> HopsUsedS(int64_t host, uint64_t id);  // kAbsent: there are none
  absl::Status PutHops(int64_t host, const HopList& list, int64_t now_ns);
  absl::StatusOr<int64_t> UnusedS();  // used until then: used by nothing that is kept
  absl::StatusOr<bool> RoomForPath(int64_t host);
  absl::StatusOr<bool> RoomForHops(int64_t host, int64_t now_ns);
  // How many went.
  absl::StatusOr<size_t> DropPaths(Statement& which);
  absl::StatusOr<size_t> DropHops(Statement& which);

  Database& db_;
  const NameBounds bounds_;
  HostCache<PathKey, Path, PathHash> paths_{kMostCached};
  HostCache<uint64_t, int64_t> hops_{kMostCached};  // when used
};

}  // namespace cw::fleet
