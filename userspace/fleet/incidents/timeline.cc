// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/incidents/timeline.h"

#include "userspace/fleet/ingest/translate.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr size_t kMostNames = 200'000;
constexpr int kMostHops = 64;

}  // namespace

void PathNames::Learn(const pb::RingSecond& second) {
  for (const pb::RingName& name : second.names()) {
    const std::optional<Addr> local = AddressOf(name.local()), remote = AddressOf(name.remote());
    if (!local || !remote || name.hops_size() > kMostHops || names_.size() >= kMostNames) continue;
    NamedPath path{.key = {*local, *remote, static_cast<uint16_t>(name.udp_port()), name.reverse()},
                   .peer = CutUtf8(name.peer(), 253),
                   .hops = {},
                   .hops_known = name.hops_known()};
    for (const std::string& bytes : name.hops()) path.hops.push_back(AddressOf(bytes).value_or(Addr{}));
    names_[{second.run(), name.path()}] = std::move(path);
  }
}

const NamedPath* PathNames::Find(uint64_t run, uint32_t number) const {
  const auto found = names_.find({run, number});
  return found == names_.end() ? nullptr : &found->second;
}

PathState StateOf(const pb::RingPath& path) {
  const bool known = path.state() >= pb::PATH_STATE_NEW && path.state() <= pb::PATH_STATE_SILENT;
  return known ? static_cast<PathState>(path.state()) : PathState::kUp;
}

}  // namespace cw::fleet
