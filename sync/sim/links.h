// SPDX-License-Identifier: Apache-2.0
//
// How the hosts of a simulation measure each other. Two kinds: packets through the production estimator
// (packet_links.h), and an error model whose figures were taken from the first kind (model_links.h). One thread.
#pragma once

#include <memory>

#include "sync/pair_estimator.h"
#include "sync/sim/fleet.h"

namespace cw::sync::sim {

class Links {
 public:
  virtual ~Links() = default;
  virtual void AdvanceTo(TrueNs t) = 0;
  // What the host at this end of the link knows about the other's clock.
  virtual Estimate View(uint32_t link, int end, TrueNs t) = 0;
  // The host at this end sends its message to the other.
  virtual void Send(uint32_t link, int end, TrueNs t) = 0;
  // The host's agent starts, or was told that its clock was stepped or slept: nothing is measured.
  virtual void Forget(uint32_t host, TrueNs t) = 0;
  // What connection or load have changed for one host, or for all.
  virtual void Changed(TrueNs t) = 0;
  // A NIC's clock read as host time, minus the host's clock; ns.
  virtual double NicErrorNs(uint32_t host, int nic, TrueNs t) = 0;
};

std::unique_ptr<Links> MakePacketLinks(Fleet& fleet);
std::unique_ptr<Links> MakeModelLinks(Fleet& fleet);

}  // namespace cw::sync::sim
