// SPDX-License-Identifier: Apache-2.0
//
// Outages of links within the past hour: when one has flapped too often, and which paths are better left alone for it.
// A flap is one outage, however many paths died of it. Two deaths belong to one outage when a link explains both, and
// the later one's path showed no sign of life after the verdict on the first: had the link been up in between, a living
// path would have. Where paths cannot tell several links apart, an outage counts for each of them, and every count is
// told with how many of its outages no other link explains; a death that joins an outage later narrows it down.
// Damping is that of paths (control/damping.h), over all outages of whose links a path takes every one: so what one
// pair of NICs met keeps the flows of all away.
// Pure: time comes in (any monotonic clock). One thread per object.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "userspace/control/damping.h"

namespace cw::control {

struct LinkOutage {
  struct Witness {
    uint64_t path = 0;  // any number that tells paths apart; 0: of an earlier agent
    std::string name;   // for people
  };
  std::vector<std::string> links;  // names, sorted: one of them went down
  int64_t began_ns = 0;            // the first verdict
  std::vector<Witness> seen_by;    // those that died of it, some of many
};

struct FlapRules {
  int alert = 8;                               // more flaps than this …
  int64_t window_ns = 3'600'000'000'000;       // … within so long
  int64_t slack_ns = 10'000'000;               // answers may be under way for so long after a verdict on their link
  int64_t damping_memory_ns = 60'000'000'000;  // twelve half-lives
  DampingRules damping;
};

struct FlapCount {
  int flaps = 0;
  int certain = 0;  // that no other link explains
};

struct FlapAlert {
  std::vector<std::string> links;  // all that have crossed the limit with this outage: no path tells them apart
  FlapCount count;                 // of the first of them
  int64_t first_ns = 0, last_ns = 0;
  std::vector<std::string> seen_by;  // names of paths, sorted, each once
};

class LinkBook {
 public:
  explicit LinkBook(const FlapRules& rules = {}) : rules_(rules) {}

  // alive_ns: the newest sign of life of the paths that died, before they did; INT64_MAX: an outage of its own. An
  // alert when a link has flapped more than `alert` times within the window, once until it has fallen below again.
  std::optional<FlapAlert> Add(LinkOutage outage, int64_t alive_ns);
  // The path did not die after all, where alive_ns was its last sign of life: what it alone showed was no outage.
  void Retract(uint64_t path, int64_t alive_ns);

  FlapCount CountOf(const std::string& link, int64_t now_ns) const;
  std::map<std::string, FlapCount> Counts(int64_t now_ns) const;  // of all with any
  // Has a link of the path, by these names, flapped so lately that no flow should go there?
  bool Damps(absl::Span<const std::string> links, int64_t now_ns) const;
  bool AnyToDamp(int64_t now_ns) const;
  // "has flapped more than 8 times within the past hour"
  std::string AlertText() const;

  const std::deque<LinkOutage>& outages() const { return outages_; }
  void Restore(std::deque<LinkOutage> outages);  // what an earlier agent had
  bool TakeChanged();                            // since the last call

 private:
  bool InWindow(const LinkOutage& outage, int64_t now_ns) const;
  LinkOutage* SameAs(const LinkOutage& outage, int64_t alive_ns);
  static void Join(LinkOutage& outage, const LinkOutage& more);
  FlapAlert AlertOf(std::vector<std::string> links, int64_t now_ns) const;
  void Drop(int64_t now_ns);

  FlapRules rules_;
  std::deque<LinkOutage> outages_;  // as they came
  bool changed_ = false;
};

}  // namespace cw::control
