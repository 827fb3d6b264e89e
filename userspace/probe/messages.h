// SPDX-License-Identifier: Apache-2.0
//
// Bodies of the messages between two agents (the datagram around them: packet.h). All integers big-endian.
//   byte 0 kind, byte 1 version (1), bytes 2-3 count; then `count` records, or Hello's two strings.
// A path's death has its slot in front of the records, which are QPNs.
// A clock claim is one record of 149 bytes: host id, timeline (8 each), state (1), anchor time, offset, slope in 10^-6
// ppb, error, reference id, width (8 each), hops (4), TAI offset, TAI bound (8 each), TAI hops (4), rate in 10^-6 ppb
// (8), reference's round (4), an anchor's id, offset, bound, drift in 10^-6 ppb, age (8 each), hops (4), flags (4:
// 1 = its timeline is split). Decoders accept any bytes: a wrong length or count is an error, never a partial result.
// Kinds and versions that a newer agent may have are told apart from faults, so that its messages are passed over and
// nothing else. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "maps/abi.h"
#include "sync/agreement.h"
#include "sync/envelope.h"
#include "userspace/model/nic_report.h"

namespace cw::probe {

inline constexpr uint8_t kBodyVersion = 1;

// The receiver's half of one sampled packet, for the host that sent the packet. The addresses are the pair's.
struct SampleHalf {
  uint32_t dqpn = 0;  // 24 bits
  uint32_t psn = 0;   // 24 bits
  bool is_resp = false;
  bool duplicate = false;
  int64_t t_rx_ns = 0;  // clock of the message's sender
  bool operator==(const SampleHalf&) const = default;
};

// A probe that had to wait for nothing (a point of the low envelope); see ClockBatch.
struct ClockPoint {
  uint8_t slot = 0;     // of the prober
  int64_t t_tx_ns = 0;  // T1, clock of the prober: the message's sender
  int64_t t_rx_ns = 0;  // T2, clock of the peer: the message's receiver
  bool operator==(const ClockPoint&) const = default;
};

struct SampleBatch {
  std::vector<SampleHalf> samples;
  bool operator==(const SampleBatch&) const = default;
};

// The sender's own probes towards the receiver, so that the receiver has the same kind of stamp in both directions.
struct ClockBatch {
  std::vector<ClockPoint> points;
  bool operator==(const ClockBatch&) const = default;
};

// A probe and its reply that had to wait for nothing: the sender's own, for the receiver to have the way towards it
// too. T1 and T4 by the clock of the prober, the message's sender; T2 and T3 by the receiver's.
struct TripBatch {
  std::vector<sync::Trip> trips;
  // Whether the arrivals (T2, T4) were stamped by the NICs of both. Then also what the stamps of the sender's NIC may
  // be off by once they are in its local time: likely, and at most.
  bool by_nics = false;
  int64_t error_ns = 0, bound_ns = 0;
  bool operator==(const TripBatch& other) const;
};

struct Hello {
  std::string host;     // at most 253 bytes
  std::string version;  // of the agent, at most 64 bytes
  bool operator==(const Hello&) const = default;
};

// What the sender says of its own fleet time.
struct ClockClaim {
  sync::FleetClaim claim;
  bool operator==(const ClockClaim&) const = default;
};

// What the sender measures of the fleet times of those that it compares itself with, for the audit of the mesh.
struct LinkRecord {
  uint64_t host_id = 0;         // of the other end
  int64_t disagreement_ns = 0;  // its fleet time − the sender's, by their link
  int64_t error_ns = 1;         // likely; 1 to 10^12
  bool operator==(const LinkRecord&) const = default;
};
struct LinkBatch {
  std::vector<LinkRecord> links;
  bool operator==(const LinkBatch&) const = default;
};

// The sender's path to the receiver is dead, and with it may have died what the sender's flows on it carried: among it
// acknowledgements for, and answers to, what the receiver's queue pairs asked.
struct PathDeath {
  uint8_t slot = 0;            // of the sender
  std::vector<uint32_t> qpns;  // the receiver's queue pairs that these flows went to; 24 bits, not 0
  bool operator==(const PathDeath&) const = default;
};

// Which pairs of NICs are out of reach, and what carries their packets. A record is 68 bytes: four addresses (the
// pair's, the carrier's), tag, bits 0 silent and 1 restores, reserved 0 (2).
struct NicReports {
  std::vector<NicReport> reports;
  bool operator==(const NicReports&) const = default;
};

// Sent in another class over a path that is silent; the answer comes back in the usual class over any path. Bytes:
// slot, 1 for an answer, 0 (2), token (4).
struct ClassQuestion {
  uint8_t slot = 0;  // of the one that asks
  bool answer = false;
  uint32_t token = 0;  // echoed
  bool operator==(const ClassQuestion&) const = default;
};

// When requests of a collective's operations were complete at the receiver's end of a queue pair that comes from the
// message's receiver (userspace/profile/chunks.h). In front of the records: the timeline of the fleet time (8). A
// record is 40 bytes: operation (8), QPN, number, posted, bound (4 each), time, bytes (8 each).
struct ChunkArrival {
  uint64_t operation = 0;  // its name, the same at both ends
  uint32_t qpn = 0;        // of the message's sender; 24 bits, not 0
  uint32_t number = 0;     // of the chunk, among those of the operation on the queue pair; below posted
  uint32_t posted = 0;     // of these in all, 1 to 2^24
  uint32_t bound_ns = 0;   // of the time; at most 10^9
  int64_t fleet_ns = 0;
  uint64_t bytes = 0;  // of the whole operation, 0: not known
  bool operator==(const ChunkArrival&) const = default;
};
struct ChunkArrivals {
  uint64_t timeline = 0;  // ClockClaim's
  std::vector<ChunkArrival> arrivals;
  bool operator==(const ChunkArrivals&) const = default;
};

// What arrived at the receiver's NIC, of flows towards it; a question has no numbers. 1 for an answer, 0 (3), then 12
// bytes for each: QPN with bit 24 for "known", gaps, packets. The two counts are the low 32 bits since the flow is
// known there.
struct GapReport {
  struct Flow {
    uint32_t qpn = 0;  // of the host that answers; 24 bits, not 0
    bool known = false;
    uint32_t gaps = 0;  // times that PSNs were missing: lost, or overtaken
    uint32_t packets = 0;
    bool operator==(const Flow&) const = default;
  };
  bool answer = false;
  std::vector<Flow> flows;
  bool operator==(const GapReport&) const = default;
};

// Asks whether a datagram of this size arrives on the port that it is sent from (bytes: from the IP header on, 0: no
// longer than this needs), and says so. Both tell the MTU of the sender's NIC. Bytes: 1 for an answer, slot, bytes (2),
// token (4), MTU (4), the NIC's name, padded with zeros (16).
struct SizeReport {
  bool answer = false;
  uint8_t slot = 0;  // of the one that asks
  uint16_t bytes = 0;
  uint32_t token = 0;  // echoed
  uint32_t mtu = 0;    // of the sender's NIC, bytes of IP packet; 0: not known
  std::string nic;     // its name, at most 15 bytes
  bool operator==(const SizeReport&) const = default;
};

// Whether the sender's programs see the packets of this NIC of its host. Where they do not, its probes do not leave as
// such and nothing is answered there: that is no silence of its paths. Bytes: address (16), 1 for "they do", 0 (3).
struct NicMeasures {
  Addr nic;
  bool measures = false;
  bool operator==(const NicMeasures&) const = default;
};

using Body = std::variant<SampleBatch, ClockBatch, Hello, ClockClaim, TripBatch, LinkBatch, PathDeath, NicReports,
                          ClassQuestion, ChunkArrivals, GapReport, SizeReport, NicMeasures>;

inline constexpr size_t kBodyHeaderLen = 4;
inline constexpr size_t kSampleLen = 16;
inline constexpr size_t kClockPointLen = 17;
inline constexpr size_t kTripLen = 32;
inline constexpr size_t kNicErrorsLen = 16;  // before the trips of a batch by NICs
inline constexpr size_t kMaxTripsPerMessage = (CW_MSG_MAX - kBodyHeaderLen - kNicErrorsLen) / kTripLen;  // 33
inline constexpr int64_t kMaxNicErrorNs = 100'000;
inline constexpr int64_t kMaxTripNs = 2'000'000'000'000'000'000;  // round trips of such stamps cannot overflow
inline constexpr size_t kClockClaimLen = 149;
inline constexpr size_t kLinkLen = 24;
inline constexpr size_t kMaxLinksPerMessage = (CW_MSG_MAX - kBodyHeaderLen) / kLinkLen;  // 45
inline constexpr size_t kNicReportLen = 68;
inline constexpr size_t kMaxNicReportsPerMessage = (CW_MSG_MAX - kBodyHeaderLen) / kNicReportLen;  // 16
inline constexpr size_t kPathDeathLen = 4;  // slot and three zeros, then 4 bytes for each queue pair
inline constexpr size_t kMaxQpnsPerMessage = (CW_MSG_MAX - kBodyHeaderLen - kPathDeathLen) / 4;  // 273
inline constexpr size_t kClassQuestionLen = 8;
inline constexpr size_t kNicNameLen = 16;
inline constexpr size_t kSizeReportLen = 12 + kNicNameLen;
inline constexpr size_t kNicMeasuresLen = 20;
inline constexpr size_t kGapHeaderLen = 4;
inline constexpr size_t kGapLen = 12;
inline constexpr size_t kMaxGapsPerMessage = (CW_MSG_MAX - kBodyHeaderLen - kGapHeaderLen) / kGapLen;  // 90
inline constexpr size_t kTimelineLen = 8;
inline constexpr size_t kChunkArrivalLen = 40;
inline constexpr size_t kMaxChunkArrivalsPerMessage =
    (CW_MSG_MAX - kBodyHeaderLen - kTimelineLen) / kChunkArrivalLen;  // 27
inline constexpr uint32_t kMaxChunks = 1u << 24;
inline constexpr uint32_t kMaxChunkBoundNs = 1'000'000'000;
inline constexpr int64_t kMaxLinkErrorNs = 1'000'000'000'000;
// Times in a claim are at most so far from zero (95 years), so that sums of three cannot overflow.
inline constexpr int64_t kMaxClaimNs = 3'000'000'000'000'000'000;
inline constexpr size_t kMaxSamplesPerMessage = (CW_MSG_MAX - kBodyHeaderLen) / kSampleLen;          // 68
inline constexpr size_t kMaxClockPointsPerMessage = (CW_MSG_MAX - kBodyHeaderLen) / kClockPointLen;  // 64

// InvalidArgument: more records than a message holds, a string that is too long, a number out of its range.
absl::StatusOr<std::vector<uint8_t>> EncodeBody(const Body& body);
// InvalidArgument: not a body. Unimplemented: of a kind or version that this agent does not know.
absl::StatusOr<Body> DecodeBody(absl::Span<const uint8_t> bytes);

}  // namespace cw::probe
