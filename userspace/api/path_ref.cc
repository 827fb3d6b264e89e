// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/path_ref.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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
