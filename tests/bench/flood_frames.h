// SPDX-License-Identifier: Apache-2.0
//
// Probes that must not be answered, made of genuine ones as they went over the wire of a host: whole Ethernet frames,
// IPv4, no VLAN tag. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cw::bench {

enum class BadProbe {
  kMalformed,    // our opcode and QPN without the magic: perhaps somebody else's, so it passes to the kernel
  kUnknownPeer,  // from an address that is no peer
  kWrongKey,     // names a key that is not valid
  kWrongMac,     // of a round to come, so that nothing but its MAC is wrong: all of it has to be computed
  kReplayed,     // a request that was answered already
  kStaleReply,   // an answer that was taken already
  kReflected,    // the host's own request, sent back as if its peer had asked
};
inline constexpr BadProbe kBadProbes[] = {BadProbe::kMalformed, BadProbe::kUnknownPeer, BadProbe::kWrongKey,
                                          BadProbe::kWrongMac,  BadProbe::kReplayed,    BadProbe::kStaleReply,
                                          BadProbe::kReflected};
std::string NameOf(BadProbe kind);
// The counters of maps/abi.h under which the dataplane refuses it: a reflected request may be old by the peer's books.
std::vector<std::string> CountersOf(BadProbe kind);

// Frames to and from the host under attack.
struct GenuineProbes {
  std::string request;  // to it
  std::string reply;    // to it
  std::string own;      // a request of its own
};

// What a frame is, by opcode, QPN, magic and type; none: no probe.
enum class ProbeKind { kRequest, kReply };
std::optional<ProbeKind> KindOf(const std::string& frame);
bool IsFrom(const std::string& frame, const std::string& address);  // dotted
bool IsTo(const std::string& frame, const std::string& address);

std::string MakeBad(BadProbe kind, const GenuineProbes& genuine);

// Of an Ethernet frame's IPv4 header: true when the checksum is right.
bool IpChecksumIsRight(const std::string& frame);

}  // namespace cw::bench
