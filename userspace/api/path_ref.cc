// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/path_ref.h"

#include <map>
#include <set>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/api/flow_ref.h"

namespace cw::api {
namespace {

using cwfabric::v1::Pair;
using cwfabric::v1::Path;
using cwfabric::v1::PathsReply;

std::vector<const Pair*> PairsOf(const PathsReply& paths, absl::string_view peer) {
  std::vector<const Pair*> found;
  for (const Pair& pair : paths.pairs()) {
    const bool whole = pair.peer() == peer || pair.remote_address() == peer;
    const bool with_nic = absl::StrCat(pair.nic(), ":", pair.peer()) == peer ||
                          absl::StrCat(pair.nic(), ":", pair.remote_address()) == peer;
    if (whole || with_nic) found.push_back(&pair);
  }
  return found;
}

}  // namespace

absl::StatusOr<What> ResolveWhat(const PathsReply& paths, const cwfabric::v1::QpsReply& flows, absl::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError("no flow or path given");
  const absl::StatusOr<PathRef> path = ResolvePath(paths, text);
  if (path.ok()) return What{.path = *path, .flow = ""};
  if (!absl::IsUnimplemented(path.status())) return path.status();
  absl::StatusOr<std::string> flow = ResolveFlow(flows, text);
  if (!flow.ok()) return flow.status();
  return What{.path = {}, .flow = *std::move(flow)};
}

absl::Status CheckPeer(const PathsReply& paths, const std::string& remote) {
  constexpr size_t kMost = 20;
  std::map<std::string, std::set<std::string>> peers;
  for (const Pair& pair : paths.pairs()) {
    if (pair.peer() == remote || pair.remote_address() == remote) return absl::OkStatus();
    peers[pair.peer()].insert(pair.remote_address());
  }
  if (peers.empty())
    return absl::NotFoundError(absl::StrCat("there is no peer \"", remote,
                                            "\": none is configured (peers in the "
                                            "agent's configuration; cwagentd --check-config shows them)"));
  std::vector<std::string> names;
  for (const auto& [name, addresses] : peers) {
    if (names.size() < kMost) names.push_back(absl::StrCat(name, " (", absl::StrJoin(addresses, ", "), ")"));
  }
  const std::string more = peers.size() > kMost ? absl::StrCat(" and ", peers.size() - kMost, " more") : "";
  return absl::NotFoundError(
      absl::StrCat("there is no peer \"", remote, "\"; known: ", absl::StrJoin(names, ", "), more));
}

absl::StatusOr<PathRef> ResolvePath(const PathsReply& paths, absl::string_view text) {
  const size_t slash = text.rfind('/');
  PathRef ref;
  if (slash == absl::string_view::npos || !absl::SimpleAtoi(text.substr(slash + 1), &ref.slot))
    return absl::UnimplementedError("not a path: PEER/PATH is wanted, such as host3/2");
  const std::vector<const Pair*> pairs = PairsOf(paths, text.substr(0, slash));
  if (pairs.empty())
    return absl::UnimplementedError(absl::StrCat("no peer is called \"", text.substr(0, slash), "\"; see cwctl paths"));
  if (pairs.size() > 1) {
    std::vector<std::string> names;
    for (const Pair* pair : pairs) {
      names.push_back(absl::StrCat("  ", pair->nic(), ":", pair->remote_address(), "/", ref.slot));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is ambiguous; use one of:\n", absl::StrJoin(names, "\n")));
  }
  ref.pair = pairs.front()->index();
  for (const Path& path : pairs.front()->paths()) {
    if (path.slot() == ref.slot) return ref;
  }
  return absl::NotFoundError(absl::StrCat("no path ", ref.slot, " to ", pairs.front()->peer(), "; see cwctl paths"));
}

std::string PathName(const PathsReply& paths, const PathRef& path) {
  for (const Pair& pair : paths.pairs()) {
    if (pair.index() != path.pair) continue;
    if (PairsOf(paths, pair.peer()).size() == 1) return absl::StrCat(pair.peer(), "/", path.slot);
    return absl::StrCat(pair.nic(), ":", pair.remote_address(), "/", path.slot);
  }
  return absl::StrCat("pair ", path.pair, "/", path.slot);
}

}  // namespace cw::api
