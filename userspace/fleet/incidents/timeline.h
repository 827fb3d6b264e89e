// SPDX-License-Identifier: Apache-2.0
//
// A bundle's seconds with the names of their paths resolved: what view and replay walk over. Values; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "userspace/api/ring.pb.h"
#include "userspace/fleet/incidents/bundle.h"
#include "userspace/fleet/store/records.h"
#include "userspace/model/addr.h"

namespace cw::fleet {

struct NamedPath {
  PathKey key;
  std::string peer;
  std::vector<Addr> hops;  // zero = silent
  bool hops_known = false;
};

// The names that a host's seconds told so far, by run and number. What is no name (an address of another size) is left
// out, and so are paths of that number.
class PathNames {
 public:
  void Learn(const cwfabric::v1::RingSecond& second);
  const NamedPath* Find(uint64_t run, uint32_t number) const;  // nullptr: never told

 private:
  std::map<std::pair<uint64_t, uint32_t>, NamedPath> names_;
};

// UNSPECIFIED stands for up.
PathState StateOf(const cwfabric::v1::RingPath& path);

}  // namespace cw::fleet
