// SPDX-License-Identifier: Apache-2.0
// Any bytes as what comes from the network or the kernel and is read outside of BPF: a message datagram of a peer, a UD
// SEND to a NIC without queue pairs, ICMP errors of switches, answers of netlink about qdiscs and filters. No read
// outside of them (AddressSanitizer).
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "userspace/dataplane/qdiscs.h"
#include "userspace/dataplane/tc_dump.h"
#include "userspace/probe/icmp.h"
#include "userspace/probe/packet.h"
#include "userspace/probe_verbs/packing.h"
#include "userspace/probe_verbs/ud_packet.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

void Message(absl::Span<const uint8_t> packet) {
  const absl::StatusOr<cw::probe::MessageView> view = cw::probe::ParseMessage(packet);
  if (!view.ok()) return;
  Require(view->body.empty() || (view->body.data() >= packet.data() &&
                                 view->body.data() + view->body.size() <= packet.data() + packet.size()));
  Require(!cw::probe::VerifyMessage(packet, cw::probe::MacKey{}).ok());  // nobody guesses two MACs
}

void UdSend(absl::Span<const uint8_t> packet) {
  const auto send = cw::probe_verbs::ParseUdSend(packet);
  if (!send) return;
  Require(send->payload.data() + send->payload.size() <= packet.data() + packet.size());
  cw::probe_verbs::Frame frame;
  const auto packed =
      cw::probe_verbs::PackFrame({.from = send->from, .to = send->to}, send->port, send->payload, &frame);
  Require(!packed || cw::probe_verbs::Unpack(cw::probe_verbs::PacketOf(*packed)).ok());
}

}  // namespace

// The first byte says what it is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t length = size - 1;
  // A copy that ends where the bytes end, aligned as the kernel's answers are.
  std::unique_ptr<uint8_t[]> exact(new uint8_t[length]);
  std::copy(data + 1, data + size, exact.get());
  const absl::Span<const uint8_t> bytes(exact.get(), length);
  std::vector<cw::dataplane::Qdisc> qdiscs;
  std::vector<cw::dataplane::TcProgram> programs;
  switch (data[0] % 6) {
    case 0:
      Message(bytes);
      break;
    case 1:
      (void)cw::probe::ParseTimeExceeded(bytes);
      break;
    case 2:
      (void)cw::probe::ParseTimeExceeded6(cw::Addr(), bytes);
      break;
    case 3:
      (void)cw::dataplane::ParseQdiscDump(bytes.data(), length, 1, qdiscs);
      break;
    case 5:
      UdSend(bytes);
      break;
    default:
      (void)cw::dataplane::ParseTcDump(bytes.data(), length, programs);
  }
  return 0;
}
