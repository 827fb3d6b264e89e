// SPDX-License-Identifier: Apache-2.0
//
// A path as people type it: PEER/PATH, PEER being a peer's name or address, or NIC:PEER where several NICs of this host
// lead to it; PATH its number. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::api {

struct PathRef {
  uint32_t pair = 0;  // Pair.index
  uint32_t slot = 0;
};

// Unimplemented: the text is not of this form, or names no peer: it may be a flow. NotFound: the peer has no such path.
// InvalidArgument with the candidates when several pairs fit.
absl::StatusOr<PathRef> ResolvePath(const cwfabric::v1::PathsReply& paths, absl::string_view text);

// What `cwctl why` was asked about: a path, or else a flow's id.
struct What {
  std::optional<PathRef> path;
  std::string flow;
};
// A name may be both, since NICs and peers stand before a '/': peers are asked first. Errors: as of ResolvePath and
// ResolveFlow.
absl::StatusOr<What> ResolveWhat(const cwfabric::v1::PathsReply& paths, const cwfabric::v1::QpsReply& flows,
                                 absl::string_view text);

// NotFound with the peers that there are, when `remote` is neither a name nor an address of one. `paths`: of all peers.
absl::Status CheckPeer(const cwfabric::v1::PathsReply& paths, const std::string& remote);

// "host3/2"; "eth1:host3/2" where the peer's name alone names several pairs.
std::string PathName(const cwfabric::v1::PathsReply& paths, const PathRef& path);

}  // namespace cw::api
