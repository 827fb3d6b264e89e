// SPDX-License-Identifier: Apache-2.0
//
// Who moves a flow: the kernel's program, where it sees the packets, or the library in the process that owns the queue
// pair. What is decided for both alike goes by this: returns, placements by hand, drains. Thread rule: the agent's
// loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/agent/deadlines.h"
#include "userspace/agent/drains.h"
#include "userspace/agent/paths/path_lost.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/control/returns.h"
#include "userspace/model/flow.h"

namespace cw::agent {

namespace v1 = ::cwfabric::v1;

// A flow left a bad path, and is to come back.
using LeftBadPath =
    std::function<void(const FlowKey& flow, uint32_t pair, control::ReturnPlace from, control::ReturnPlace to)>;

// Where an operator wants a flow.
struct SteerTarget {
  uint8_t slot = CW_SLOT_NONE;  // NONE: not known
  uint16_t port = 0;            // 0: where the kernel moves, the native one
  bool places = true;           // false: only the bond's port is asked for
  bool by_path = false;         // named by its path, not by a port
  uint8_t lag_port = 0;         // of its bond; 0: as it is
  std::string text;             // as people are told
};

class Mover {
 public:
  virtual ~Mover() = default;
  virtual void OnPathLost(const PathLost& lost) = 0;
  virtual std::vector<control::ReturnFlow> Flows() const = 0;  // that it moves, where they are now
  // false: it cannot be asked to now.
  virtual bool GoBack(const control::ReturnAction& action) = 0;

  // By hand. The id is as cwctl qps shows it; nullopt: no flow of its.
  virtual std::optional<FlowKey> Find(const std::string& id) const = 0;
  // Why it cannot be as asked, apart from what is wrong with the path.
  virtual absl::Status MayPlace(const FlowKey& flow, const v1::SteerSetRequest& request) const = 0;
  virtual SteerTarget Native(const FlowKey& flow) const = 0;
  virtual uint8_t SlotOfPort(const FlowKey& flow, uint16_t port) const = 0;  // CW_SLOT_NONE: none is known
  struct Placed {
    std::string effect, undo;  // for people; undo "": nothing to undo
    bool pending = false;
    std::optional<Deadlines::Place> before;  // to be kept for GiveBack
  };
  virtual absl::StatusOr<Placed> PlaceByHand(const FlowKey& flow, const SteerTarget& to, bool force) = 0;
  virtual std::vector<FlowKey> ByHand(bool locked_too) const = 0;  // placed by an operator
  // The operator's placement ends. What becomes of it, as "goes back to path 3"; nullopt: it was not placed by hand.
  virtual std::optional<std::string> GiveBack(const FlowKey& flow, const std::optional<Deadlines::Place>& before) = 0;
  // Instead of those that it has, enum cw_steer_flags; returns what they were. Not ok: it can have none.
  virtual absl::StatusOr<uint8_t> SetLocks(const FlowKey& flow, uint8_t locks) = 0;

  // Off what is drained. unknown: slots that may cross something that is; certainly: it is on one that does; now: with
  // its next packet; act: otherwise it is only told of.
  struct DrainWay {
    uint16_t unknown = 0;
    bool certainly = true, now = false, act = true;
  };
  enum class Leaving : uint8_t { kNo, kGoes, kUnderWay, kStays };
  virtual Leaving LeaveDrained(const FlowKey& flow, const DrainWay& way, DrainEntry::Moved& moved) = 0;
  // If it is still where the drain put it, and where it was is not drained by somebody else. false: it stays.
  virtual bool ReturnDrained(const FlowKey& flow, const DrainEntry::Moved& moved) = 0;
};

}  // namespace cw::agent
