// SPDX-License-Identifier: Apache-2.0
//
// Which findings a drain explains: what was drained may be dead, silent or pulled. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/findings/finding.h"

namespace cw::fleet {

// Of links: where they end at an address that is drained (of a switch or host: or begin there). Of switches, NICs and
// hosts: by name. Never what a part that is drained cannot explain: slow jobs, queues.
bool Explains(const cwfabric::v1::FleetDrain& drain, const Finding& finding);

// Which findings are muted, and what receivers of alerts are told: of a muted one nothing, of one that they know and
// that is muted now its end, and of one that is muted no longer and goes on its beginning. Threads: one at a time.
class MuteBook {
 public:
  using MutedBy = std::function<std::string(const Finding&)>;  // "" = by nothing
  struct News {
    std::vector<Finding> alerts;
    std::vector<std::pair<Finding, std::string>> keep;  // for the store, with what mutes them
  };

  // A finding that went on when the service was started, and what muted it then.
  void Resume(const Finding& finding, const std::string& muted_by);
  // changed: opened, ended, or with news; open: all that go on.
  News Take(const std::vector<Finding>& changed, const std::vector<Finding>& open, const MutedBy& muted_by,
            int64_t now_ns);
  bool IsMuted(uint64_t id) const { return muted_.contains(id); }
  size_t muted() const { return muted_.size(); }

 private:
  void TakeOpen(const Finding& finding, bool changed, const std::string& by, int64_t now_ns, News& news);
  void TakeEnded(const Finding& finding, News& news);

  std::map<uint64_t, std::string> muted_;  // that go on → by what
  std::set<uint64_t> alerted_;             // that go on, as receivers know
};

}  // namespace cw::fleet
