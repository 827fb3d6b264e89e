// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/native_port.h"

#include <algorithm>
#include <array>

#include "userspace/rdma/placement.h"

namespace cw::rdma {

const char* PortFromName(PortFrom from) {
  switch (from) {
    case PortFrom::kPackets:
      return "packets";
    case PortFrom::kOwner:
      return "owner";
    case PortFrom::kLabel:
      return "label";
    case PortFrom::kQpns:
      return "qpns";
    case PortFrom::kUnknown:
      break;
  }
  return "";
}

const char* QpStateName(uint8_t state) {
  constexpr std::array<const char*, 7> kNames = {"", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < kNames.size() ? kNames[state] : "";
}

// ice is the bus driver under irdma, hns3 the one under hns_roce, mana that of mana_ib, ionic that of ionic_rdma.
bool PortFollowsLabel(const std::string& driver) {
  constexpr std::array<const char*, 6> kDrivers = {"rdma_rxe", "mlx5_core", "ice", "hns3", "mana", "ionic"};
  return std::any_of(kDrivers.begin(), kDrivers.end(), [&](const char* known) { return driver == known; });
}

NativePort NativePortOf(const QpInfo& qp, const std::string& driver) {
  if (qp.source == "inproc" && qp.udp_sport != 0) return {qp.udp_sport, PortFrom::kOwner};
  if (qp.lqpn == 0 || qp.rqpn == 0 || !PortFollowsLabel(driver)) return {};
  if (qp.label_known && qp.flow_label != 0) return {PortOfLabel(qp.flow_label), PortFrom::kLabel};
  return {PortOfQpns(qp.lqpn, qp.rqpn), PortFrom::kQpns};
}

}  // namespace cw::rdma
