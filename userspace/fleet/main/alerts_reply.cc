// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/alerts_reply.h"

namespace cw::fleet {

namespace pb = cwfabric::v1;

pb::FleetAlertsReply AlertsReplyOf(const std::vector<AlertCounts>& counts,
                                   const std::vector<std::vector<AlertDelivery>>& deliveries,
                                   const std::vector<pb::FleetMute>& mutes, bool all) {
  pb::FleetAlertsReply reply;
  for (size_t i = 0; i < counts.size(); ++i) {
    pb::FleetReceiver& receiver = *reply.add_receivers();
    receiver.set_name(counts[i].receiver);
    receiver.set_sent(counts[i].sent);
    receiver.set_failed(counts[i].failed);
    receiver.set_refused(counts[i].refused);
    receiver.set_no_room(counts[i].no_room);
    receiver.set_waiting(counts[i].waiting);
    receiver.set_fault(counts[i].fault);
    if (i >= deliveries.size()) continue;
    for (const AlertDelivery& delivery : deliveries[i]) {
      if (!all && !delivery.open && delivery.result == "delivered") continue;
      pb::FleetAlert& alert = *reply.add_alerts();
      alert.set_receiver(counts[i].receiver);
      alert.set_finding(IdText(delivery.finding));
      alert.set_cause(std::string(CauseName(delivery.cause)));
      alert.set_scope(delivery.scope);
      alert.set_open(delivery.open);
      alert.set_since_ns(absl::ToUnixNanos(delivery.since));
      if (delivery.delivered != absl::InfinitePast()) alert.set_delivered_ns(absl::ToUnixNanos(delivery.delivered));
      alert.set_result(delivery.result);
    }
  }
  for (const pb::FleetMute& mute : mutes) *reply.add_mutes() = mute;
  return reply;
}

}  // namespace cw::fleet
