// SPDX-License-Identifier: Apache-2.0
//
// What the fleet service wants free of this host's flows: its orders, carried out by the agent's own drains (drain.cc),
// and what became of them. Orders are whole: what the same service ordered before and does not name any more is given
// back. Which drains are the fleet's is kept in a file of the run folder, so that an agent that was started anew gives
// back what ended meanwhile. The host's own operator has the last word: what is undrained on the host stays so.
//
// Time comes in as an argument, of a clock that nobody sets (SteadyNow). Threads: Take from any; the rest from one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/agent_api.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/model/boot_file.h"

namespace cw::agent {

class FleetDrains {
 public:
  static constexpr char kFile[] = "fleet_drains.json";  // in the run folder
  static constexpr absl::Duration kLook = absl::Seconds(1);
  // For so long a host looks for paths that cross what is drained before it says that it has none: at the start of an
  // agent they are not known yet.
  static constexpr absl::Duration kNoneAfter = absl::Seconds(10);
  static constexpr absl::Duration kRepeat = absl::Seconds(2);  // what is not repeated holds no longer
  static constexpr int kMostOrders = 64, kMostTargets = 256;

  // The agent's, as AgentView has them.
  struct Asks {
    std::function<absl::StatusOr<api::v1::ActionReply>(const api::Caller&, const api::v1::DrainRequest&)> drain;
    std::function<absl::StatusOr<api::v1::ActionReply>(const api::Caller&, const api::v1::UndrainRequest&)> undrain;
    std::function<absl::StatusOr<api::v1::DrainsReply>()> drains;
  };

  // allowed: [fleet] allow has "drain"; otherwise what an earlier agent drained for the fleet is given back. boot: of
  // the kernel (BootId); what the file has of another one is void.
  FleetDrains(std::string file, std::string boot, bool allowed, Asks asks);

  void Take(const api::v1::DrainOrders& orders);
  // Carries out, looks, gives back. The state of all orders, when there is news of it, and every kRepeat.
  std::optional<api::v1::DrainReport> Step(absl::Time now);

 private:
  struct Held {
    api::v1::DrainOrder order;
    std::string instance;          // of the service that ordered it
    std::set<std::string> mine;    // drained for it, as the agent names them
    std::set<std::string> others;  // drained already, by somebody else
    absl::Time taken, tried = absl::InfinitePast(), until = absl::InfiniteFuture();
    std::string refused;     // why it is not as ordered; "" = nothing is known that is wrong
    std::string refused_at;  // the target that was refused: tried first the next time, before flows leave others
    bool undrained = false;  // by the host's operator, who keeps the last word over restarts
    bool accepted = false;   // as a whole once: what is refused later takes nothing back
    bool unclear = false;    // paths are not known well enough to say that none crosses it
    std::string effect;
  };

  void Load();
  void Save();
  void Begin(const api::v1::DrainOrders& orders, absl::Time now);
  void GiveBack(uint64_t id);
  void UndrainMine(Held& held);
  void Pursue(Held& held, const api::v1::DrainsReply& drains, absl::Time now);
  void Try(Held& held, const api::v1::DrainsReply& drains, absl::Time now);
  absl::Status TryOne(Held& held, const api::v1::DrainTarget& target, const api::v1::DrainsReply& drains,
                      absl::Time now);
  absl::Status DrainOne(Held& held, api::v1::DrainTarget target, const api::v1::Drain* standing, absl::Time now);
  void Refuse(Held& held, const std::string& why);
  // When the last of the other orders that hold it ends; nullopt: none does.
  std::optional<absl::Time> OthersUntil(const std::string& what, uint64_t but) const;
  api::v1::DrainAnswer AnswerOf(const Held& held, const api::v1::DrainsReply& drains, absl::Time now) const;

  const BootFile file_;
  const bool allowed_;
  const Asks asks_;
  std::map<uint64_t, Held> held_;  // by order
  absl::Time looked_ = absl::InfinitePast(), reported_ = absl::InfinitePast();
  std::string told_;   // the last report
  std::string saved_;  // what the file has

  std::mutex mutex_;  // of what follows
  std::vector<api::v1::DrainOrders> taken_;
};

}  // namespace cw::agent
