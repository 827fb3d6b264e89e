// SPDX-License-Identifier: Apache-2.0
//
// Our own NICs' links, each followed by its ifindex whatever the device is called: their carriers, by the kernel's news
// and count of losses, and the ports of RDMA devices on them. What happens to one is told in every mode, is what NIC
// failover goes by, and is the cause of what dies meanwhile. Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/dataplane/link_news.h"
#include "userspace/metrics/link_flaps.h"
#include "userspace/model/clock.h"

namespace cw::agent {

class Carriers {
 public:
  struct Asks {
    // Of the kernel. NotFound: no such device.
    std::function<absl::StatusOr<metrics::LinkReading>(uint32_t ifindex)> read;
    std::function<absl::StatusOr<uint32_t>(const std::string& nic)> ifindex_of;
    std::function<bool(const config::NicConfig& nic)>
        is_there;                                          // by its name, with an address that the next start finds
    std::function<bool(const NicState& nic)> helped;       // another NIC carries its packets when it is down
    std::function<void()> changed;                         // a NIC's link may be another than before
    std::function<void(telemetry::Event why)> start_anew;  // a NIC is a new device: the agent has to end
  };

  // All of them outlive it.
  Carriers(NicTable& nics, LinkFlaps& links, const Clock& local, const Clock& monotonic, EventSink& events, Asks asks)
      : nics_(nics), links_(links), local_(local), monotonic_(monotonic), events_(events), asks_(std::move(asks)) {}

  void LookAtAll();  // once a second, and at the start
  void LookAt(NicState& nic);
  void OnNews(const dataplane::LinkNews::Changed& changed);
  void OnRdmaPort(const std::string& netdev, bool up);  // netdev: the device's name now
  // Our NIC had no carrier at some time since the path's last sign of life, by the kernel's verdict on the path.
  bool Lost(const PairState& pair, const cw_ev_slot& verdict);

 private:
  void Follow(NicState& nic, const std::string& name);
  void LookForItsReturn(const NicState& nic);
  void CountLosses(NicState& nic, uint64_t losses);
  void Tell(NicState& nic, const char* witness, uint64_t losses);

  NicTable& nics_;
  LinkFlaps& links_;
  const Clock& local_;
  const Clock& monotonic_;
  EventSink& events_;
  const Asks asks_;
};

}  // namespace cw::agent
