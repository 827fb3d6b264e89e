// SPDX-License-Identifier: Apache-2.0
// cw_vm_naks LADDR RADDR LQPN RQPN SECONDS INTERVAL_US: in a machine with an agent, delivers NAKs that nobody needs to
// a queue pair that works, as tail repair would: for the first PSN that the agent's record says is not acknowledged, by
// the agent's own injector. Prints {"naks": sent, "busy": of them, with packets under way}.
#include <cstdio>
#include <cstdlib>

#include "absl/time/clock.h"
#include "bpf/psn.h"
#include "maps/names.h"
#include "maps/views.h"
#include "tests/lab/eventually.h"
#include "userspace/dataplane/netdev.h"
#include "userspace/dataplane/packet_injector.h"
#include "userspace/probe/nak_packet.h"

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "cw_vm_naks: %s\n", std::string(status.message()).c_str());
  return 1;
}

struct Work {
  cw::Addr local, remote;
  uint32_t lqpn, rqpn;
  absl::Duration span, interval;
};

int Send(const Work& work, const cw::maps::TxFlowsView& flows, const cw::dataplane::PacketInjector& injector,
         uint32_t ifindex) {
  cw_flow_key key = {};
  std::copy(work.local.bytes.begin(), work.local.bytes.end(), key.saddr);
  std::copy(work.remote.bytes.begin(), work.remote.bytes.end(), key.daddr);
  key.dqpn = work.rqpn;
  unsigned naks = 0, busy = 0;
  for (const absl::Time end = absl::Now() + work.span; absl::Now() < end; cw::lab::Hold(work.interval)) {
    const auto flow = flows.Lookup(key);
    if (!flow.ok() || !flow->acked_valid) continue;
    const auto nak =
        cw::probe::BuildSequenceNak({.from = work.remote, .to = work.local, .qpn = work.lqpn, .psn = flow->acked_psn});
    if (!nak.ok()) return Fail(nak.status());
    if (absl::Status sent = injector.Deliver(ifindex, *nak); !sent.ok()) return Fail(sent);
    ++naks;
    busy += flow->flow.req.next != flow->acked_psn;
  }
  std::printf("{\"naks\": %u, \"busy\": %u}\n", naks, busy);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: cw_vm_naks LADDR RADDR LQPN RQPN SECONDS INTERVAL_US\n");
    return 2;
  }
  const auto number = [&](int i) { return static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 0)); };
  const auto local = cw::Addr::Parse(argv[1]), remote = cw::Addr::Parse(argv[2]);
  if (!local.ok()) return Fail(local.status());
  if (!remote.ok()) return Fail(remote.status());
  const auto ifindex = cw::dataplane::IfindexOf("eth0");
  if (!ifindex.ok()) return Fail(ifindex.status());
  auto map = cw::maps::BpfMap::OpenPinned(CW_PIN_ROOT "/default/" CW_MAP_TX_FLOWS);
  if (!map.ok()) return Fail(map.status());
  const auto flows = cw::maps::TxFlowsView::Create(*std::move(map));
  if (!flows.ok()) return Fail(flows.status());
  const auto injector = cw::dataplane::PacketInjector::Create();
  if (!injector.ok()) return Fail(injector.status());
  return Send({*local, *remote, number(3), number(4), absl::Seconds(number(5)), absl::Microseconds(number(6))}, *flows,
              *injector, *ifindex);
}
