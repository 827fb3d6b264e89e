// SPDX-License-Identifier: Apache-2.0
//
// Tells findings to Alertmanagers and webhooks. Each receiver has a thread and a bounded outbox (outbox.h) of its own:
// one that is dead or slow holds up neither the search for findings nor another receiver. It is said once in the log,
// counted, and tried again after 1 to 15 s.
//
// Thread rule: Take, counts and deliveries from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "userspace/fleet/alerts/alert_text.h"
#include "userspace/fleet/alerts/delivery_log.h"
#include "userspace/fleet/findings/finding.h"

namespace cw::fleet {

struct AlertTargets {
  std::vector<std::string> alertmanagers;  // URLs, without /api/v2/alerts
  std::vector<std::string> webhooks;       // URLs, whole
};

struct AlertCounts {
  std::string receiver;  // as logs name it
  uint64_t sent = 0;     // alerts that were taken; those that are sent again count again
  uint64_t failed = 0;   // requests without success
  uint64_t refused = 0;  // alerts that the receiver will never take
  uint64_t no_room = 0;  // alerts that its outbox had no room for
  uint64_t waiting = 0;  // alerts that are due now
  std::string fault;     // of the last request; "": it succeeded, or there was none
};

class Alerts {
 public:
  Alerts(const AlertTargets& targets, const AlertWords& words);
  ~Alerts();  // within a second or two; what was not sent is not

  // Never waits for a receiver. Resumed: findings that were open before this service was started.
  void Take(const std::vector<Finding>& findings, bool resumed = false);
  std::vector<AlertCounts> counts() const;
  // By receiver, in the order of counts(); the newest first.
  std::vector<std::vector<AlertDelivery>> deliveries() const;

 private:
  class Receiver;
  std::vector<std::unique_ptr<Receiver>> receivers_;
};

}  // namespace cw::fleet
