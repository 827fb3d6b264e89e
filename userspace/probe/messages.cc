// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/messages.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace cw::probe {
namespace {

enum Kind : uint8_t {
  kSamples = 1,
  kClock = 2,
  kHello = 3,
  kClaim = 4,
  kTrips = 5,
  kLinks = 6,
  kDeath = 7,
  kNicTrips = 8,
  kNicReports = 9,
  kQuestion = 10,
  kChunks = 11,
  kGaps = 12,
  kSize = 13,
  kMeasures = 14
};

constexpr uint32_t kMask24 = 0xffffff;
constexpr uint32_t kFlagKnown = 1u << 24;
constexpr uint32_t kFlagResp = 1u << 24;
constexpr uint32_t kFlagDuplicate = 1u << 25;
constexpr size_t kMaxHost = 253;  // RFC 1035's longest name
constexpr size_t kMaxVersion = 64;
constexpr double kSlopeUnits = 1e6;       // per ppb
constexpr double kMaxSlopePpb = 1e6;      // no clock is off by a thousandth
constexpr uint32_t kMaxClaimHops = 1000;  // a claim that came further was never heard of

class Writer {
 public:
  Writer(Kind kind, size_t count) {
    Put(kind, 1);
    Put(kBodyVersion, 1);
    Put(count, 2);
  }
  void Put(uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) out_.push_back(static_cast<uint8_t>(value >> (8 * i)));
  }
  void PutString(const std::string& s) {
    Put(s.size(), 1);
    out_.insert(out_.end(), s.begin(), s.end());
  }
  std::vector<uint8_t> Take() { return std::move(out_); }

 private:
  std::vector<uint8_t> out_;
};

// Reads past the end give 0 and make ok() false, for ever: one check at the end is enough.
class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}
  uint64_t Get(size_t n) {
    if (bytes_.size() < n) {
      ok_ = false;
      bytes_ = {};
      return 0;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < n; ++i) v = v << 8 | bytes_[i];
    bytes_.remove_prefix(n);
    return v;
  }
  std::string GetString() {
    const size_t n = Get(1);
    if (bytes_.size() < n) {
      ok_ = false;
      return {};
    }
    std::string s(bytes_.begin(), bytes_.begin() + n);
    bytes_.remove_prefix(n);
    return s;
  }
  bool ok() const { return ok_; }
  size_t left() const { return bytes_.size(); }

 private:
  absl::Span<const uint8_t> bytes_;
  bool ok_ = true;
};

absl::Status TooMany(const char* what, size_t n, size_t limit) {
  return absl::InvalidArgumentError(absl::StrFormat("%d %s in one message, limit %d", n, what, limit));
}

absl::StatusOr<std::vector<uint8_t>> Encode(const SampleBatch& b) {
  if (b.samples.size() > kMaxSamplesPerMessage) return TooMany("samples", b.samples.size(), kMaxSamplesPerMessage);
  Writer w(kSamples, b.samples.size());
  for (const SampleHalf& s : b.samples) {
    if (s.dqpn > kMask24 || s.psn > kMask24) return absl::InvalidArgumentError("QPN or PSN of more than 24 bits");
    w.Put(s.dqpn, 4);
    w.Put(s.psn | (s.is_resp ? kFlagResp : 0) | (s.duplicate ? kFlagDuplicate : 0), 4);
    w.Put(static_cast<uint64_t>(s.t_rx_ns), 8);
  }
  return w.Take();
}

absl::StatusOr<std::vector<uint8_t>> Encode(const ClockBatch& b) {
  if (b.points.size() > kMaxClockPointsPerMessage) {
    return TooMany("clock points", b.points.size(), kMaxClockPointsPerMessage);
  }
  Writer w(kClock, b.points.size());
  for (const ClockPoint& p : b.points) {
    w.Put(p.slot, 1);
    w.Put(static_cast<uint64_t>(p.t_tx_ns), 8);
    w.Put(static_cast<uint64_t>(p.t_rx_ns), 8);
  }
  return w.Take();
}

bool NicErrorsInRange(const TripBatch& b) {
  return b.error_ns >= 0 && b.error_ns <= b.bound_ns && b.bound_ns <= kMaxNicErrorNs;
}

absl::StatusOr<std::vector<uint8_t>> Encode(const TripBatch& b) {
  // Those of no NIC may be one more, as earlier agents send them.
  const size_t most = b.by_nics ? kMaxTripsPerMessage : (CW_MSG_MAX - kBodyHeaderLen) / kTripLen;
  if (b.trips.size() > most) return TooMany("trips", b.trips.size(), most);
  if (b.by_nics && !NicErrorsInRange(b)) return absl::InvalidArgumentError("trips by NICs with impossible errors");
  Writer w(b.by_nics ? kNicTrips : kTrips, b.trips.size());
  if (b.by_nics) {
    w.Put(static_cast<uint64_t>(b.error_ns), 8);
    w.Put(static_cast<uint64_t>(b.bound_ns), 8);
  }
  for (const sync::Trip& t : b.trips) {
    for (int64_t ns : {t.t1_ns, t.t2_ns, t.t3_ns, t.t4_ns}) w.Put(static_cast<uint64_t>(ns), 8);
  }
  return w.Take();
}

void PutAddr(Writer& w, const Addr& address) {
  for (uint8_t byte : address.bytes) w.Put(byte, 1);
}

absl::StatusOr<std::vector<uint8_t>> Encode(const NicReports& b) {
  if (b.reports.size() > kMaxNicReportsPerMessage) {
    return TooMany("NIC reports", b.reports.size(), kMaxNicReportsPerMessage);
  }
  Writer w(kNicReports, b.reports.size());
  for (const NicReport& r : b.reports) {
    if (r.tag > kNicTags) return absl::InvalidArgumentError("NIC report with an impossible tag");
    for (const Addr& a : {r.pair.local, r.pair.remote, r.carrier.local, r.carrier.remote}) PutAddr(w, a);
    w.Put(r.tag, 1);
    w.Put((r.silent ? 1 : 0) | (r.restores ? 2 : 0), 1);
    w.Put(0, 2);
  }
  return w.Take();
}

bool LinkInRange(const LinkRecord& link) {
  return link.disagreement_ns >= -kMaxClaimNs && link.disagreement_ns <= kMaxClaimNs && link.error_ns >= 1 &&
         link.error_ns <= kMaxLinkErrorNs;
}

absl::StatusOr<std::vector<uint8_t>> Encode(const LinkBatch& b) {
  if (b.links.size() > kMaxLinksPerMessage) return TooMany("links", b.links.size(), kMaxLinksPerMessage);
  Writer w(kLinks, b.links.size());
  for (const LinkRecord& link : b.links) {
    if (!LinkInRange(link)) return absl::InvalidArgumentError("link with an impossible difference or error");
    w.Put(link.host_id, 8);
    w.Put(static_cast<uint64_t>(link.disagreement_ns), 8);
    w.Put(static_cast<uint64_t>(link.error_ns), 8);
  }
  return w.Take();
}

absl::StatusOr<std::vector<uint8_t>> Encode(const Hello& h) {
  if (h.host.size() > kMaxHost || h.version.size() > kMaxVersion) {
    return absl::InvalidArgumentError("host name or version too long for a message");
  }
  Writer w(kHello, 2);
  w.PutString(h.host);
  w.PutString(h.version);
  return w.Take();
}

absl::StatusOr<std::vector<uint8_t>> Encode(const PathDeath& death) {
  if (death.qpns.size() > kMaxQpnsPerMessage) return TooMany("queue pairs", death.qpns.size(), kMaxQpnsPerMessage);
  if (death.slot >= CW_MAX_SLOTS) return absl::InvalidArgumentError("death of an impossible slot");
  Writer w(kDeath, death.qpns.size());
  w.Put(death.slot, 1);
  w.Put(0, 3);
  for (uint32_t qpn : death.qpns) {
    if (qpn == 0 || qpn > kMask24) return absl::InvalidArgumentError("QPN 0 or of more than 24 bits");
    w.Put(qpn, 4);
  }
  return w.Take();
}

absl::StatusOr<std::vector<uint8_t>> Encode(const ClassQuestion& question) {
  if (question.slot >= CW_MAX_SLOTS) return absl::InvalidArgumentError("question about an impossible slot");
  Writer w(kQuestion, 0);
  w.Put(question.slot, 1);
  w.Put(question.answer ? 1 : 0, 1);
  w.Put(0, 2);
  w.Put(question.token, 4);
  return w.Take();
}

absl::StatusOr<std::vector<uint8_t>> Encode(const GapReport& report) {
  if (report.flows.size() > kMaxGapsPerMessage) return TooMany("flows", report.flows.size(), kMaxGapsPerMessage);
  Writer w(kGaps, report.flows.size());
  w.Put(report.answer ? 1 : 0, 1);
  w.Put(0, 3);
  for (const GapReport::Flow& flow : report.flows) {
    if (flow.qpn == 0 || flow.qpn > kMask24) return absl::InvalidArgumentError("QPN 0 or of more than 24 bits");
    w.Put(flow.qpn | (flow.known ? kFlagKnown : 0), 4);
    w.Put(flow.gaps, 4);
    w.Put(flow.packets, 4);
  }
  return w.Take();
}

absl::StatusOr<std::vector<uint8_t>> Encode(const SizeReport& report) {
  if (report.slot >= CW_MAX_SLOTS) return absl::InvalidArgumentError("size of an impossible slot's packets");
  if (report.nic.size() >= kNicNameLen) return absl::InvalidArgumentError("name of a NIC too long for a message");
  Writer w(kSize, 0);
  w.Put(report.answer ? 1 : 0, 1);
  w.Put(report.slot, 1);
  w.Put(report.bytes, 2);
  w.Put(report.token, 4);
  w.Put(report.mtu, 4);
  for (size_t i = 0; i < kNicNameLen; ++i) w.Put(i < report.nic.size() ? static_cast<uint8_t>(report.nic[i]) : 0, 1);
  return w.Take();
}

absl::StatusOr<std::vector<uint8_t>> Encode(const NicMeasures& note) {
  Writer w(kMeasures, 0);
  PutAddr(w, note.nic);
  w.Put(note.measures ? 1 : 0, 1);
  w.Put(0, 3);
  return w.Take();
}

bool ChunkInRange(const ChunkArrival& a) {
  return a.qpn != 0 && a.qpn <= kMask24 && a.posted <= kMaxChunks && a.number < a.posted &&
         a.bound_ns <= kMaxChunkBoundNs && a.fleet_ns >= -kMaxClaimNs && a.fleet_ns <= kMaxClaimNs;
}

absl::StatusOr<std::vector<uint8_t>> Encode(const ChunkArrivals& b) {
  if (b.arrivals.size() > kMaxChunkArrivalsPerMessage) {
    return TooMany("arrivals of chunks", b.arrivals.size(), kMaxChunkArrivalsPerMessage);
  }
  Writer w(kChunks, b.arrivals.size());
  w.Put(b.timeline, 8);
  for (const ChunkArrival& a : b.arrivals) {
    if (!ChunkInRange(a)) return absl::InvalidArgumentError("arrival of a chunk with a number out of its range");
    w.Put(a.operation, 8);
    for (uint32_t word : {a.qpn, a.number, a.posted, a.bound_ns}) w.Put(word, 4);
    w.Put(static_cast<uint64_t>(a.fleet_ns), 8);
    w.Put(a.bytes, 8);
  }
  return w.Take();
}

bool TimeInRange(int64_t ns) { return ns >= -kMaxClaimNs && ns <= kMaxClaimNs; }

bool SpanInRange(int64_t ns) { return ns >= 0 && ns <= kMaxClaimNs; }

bool SlopeInRange(double ppb) { return std::isfinite(ppb) && std::fabs(ppb) <= kMaxSlopePpb; }

// The receiver computes with these numbers: none may overflow a sum, or say that an error is negative.
absl::Status CheckClaim(const sync::FleetClaim& c) {
  const bool times = TimeInRange(c.anchor_ns) && TimeInRange(c.offset_ns) && TimeInRange(c.tai_offset_ns) &&
                     TimeInRange(c.anchor.offset_ns);
  const bool spans = SpanInRange(c.error_est_ns) && SpanInRange(c.width_ns) && c.tai_bound_ns >= -1 &&
                     c.tai_bound_ns <= kMaxClaimNs && SpanInRange(c.anchor.bound_ns) && SpanInRange(c.anchor.age_ns);
  const bool hops = c.hops <= kMaxClaimHops && c.tai_hops <= kMaxClaimHops && c.anchor.hops <= kMaxClaimHops;
  if (times && spans && hops && SlopeInRange(c.slope_ppb) && SlopeInRange(c.rate_ppb) &&
      SlopeInRange(c.anchor.drift_ppb))
    return absl::OkStatus();
  return absl::InvalidArgumentError("clock claim with a number out of its range");
}

constexpr uint64_t kSplitFlag = 1;  // of a clock claim
static_assert(sizeof(sync::FleetClaim) == 168, "a field that is new in the claim has to travel too");

absl::StatusOr<std::vector<uint8_t>> Encode(const ClockClaim& body) {
  const sync::FleetClaim& c = body.claim;
  if (absl::Status status = CheckClaim(c); !status.ok()) return status;
  Writer w(kClaim, 1);
  auto put = [&w](int64_t value) { w.Put(static_cast<uint64_t>(value), 8); };
  w.Put(c.host_id, 8);
  w.Put(c.timeline, 8);
  w.Put(static_cast<uint64_t>(c.state), 1);
  put(c.anchor_ns);
  put(c.offset_ns);
  put(std::llround(c.slope_ppb * kSlopeUnits));
  put(c.error_est_ns);
  w.Put(c.reference_id, 8);
  put(c.width_ns);
  w.Put(c.hops, 4);
  put(c.tai_offset_ns);
  put(c.tai_bound_ns);
  w.Put(c.tai_hops, 4);
  put(std::llround(c.rate_ppb * kSlopeUnits));
  w.Put(c.reference_seq, 4);
  w.Put(c.anchor.anchor_id, 8);
  put(c.anchor.offset_ns);
  put(c.anchor.bound_ns);
  put(std::llround(c.anchor.drift_ppb * kSlopeUnits));
  put(c.anchor.age_ns);
  w.Put(c.anchor.hops, 4);
  w.Put(c.split ? kSplitFlag : 0, 4);
  return w.Take();
}

absl::StatusOr<Body> DecodeClaim(Reader r, size_t count) {
  if (count != 1 || r.left() != kClockClaimLen) return absl::InvalidArgumentError("clock claim of a wrong length");
  sync::FleetClaim c;
  auto get = [&r] { return static_cast<int64_t>(r.Get(8)); };
  c.host_id = r.Get(8);
  c.timeline = r.Get(8);
  const uint64_t state = r.Get(1);
  if (state > static_cast<uint64_t>(sync::SyncState::kFreeRunning)) {
    return absl::InvalidArgumentError("clock claim of an impossible state");
  }
  c.state = static_cast<sync::SyncState>(state);
  c.anchor_ns = get();
  c.offset_ns = get();
  c.slope_ppb = static_cast<double>(get()) / kSlopeUnits;
  c.error_est_ns = get();
  c.reference_id = r.Get(8);
  c.width_ns = get();
  c.hops = static_cast<uint32_t>(r.Get(4));
  c.tai_offset_ns = get();
  c.tai_bound_ns = get();
  c.tai_hops = static_cast<uint32_t>(r.Get(4));
  c.rate_ppb = static_cast<double>(get()) / kSlopeUnits;
  c.reference_seq = static_cast<uint32_t>(r.Get(4));
  c.anchor.anchor_id = r.Get(8);
  c.anchor.offset_ns = get();
  c.anchor.bound_ns = get();
  c.anchor.drift_ppb = static_cast<double>(get()) / kSlopeUnits;
  c.anchor.age_ns = get();
  c.anchor.hops = static_cast<uint32_t>(r.Get(4));
  const uint64_t flags = r.Get(4);
  if ((flags & ~kSplitFlag) != 0) return absl::InvalidArgumentError("clock claim with unknown bits");
  c.split = flags == kSplitFlag;
  if (absl::Status status = CheckClaim(c); !status.ok()) return status;
  return ClockClaim{c};
}

absl::StatusOr<Body> DecodeSamples(Reader r, size_t count) {
  if (r.left() != count * kSampleLen) return absl::InvalidArgumentError("sample batch of a wrong length");
  SampleBatch b;
  b.samples.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    SampleHalf s;
    s.dqpn = static_cast<uint32_t>(r.Get(4));
    const auto word = static_cast<uint32_t>(r.Get(4));
    if (s.dqpn > kMask24 || (word & ~(kMask24 | kFlagResp | kFlagDuplicate)) != 0) {
      return absl::InvalidArgumentError("sample with unknown bits");
    }
    s.psn = word & kMask24;
    s.is_resp = (word & kFlagResp) != 0;
    s.duplicate = (word & kFlagDuplicate) != 0;
    s.t_rx_ns = static_cast<int64_t>(r.Get(8));
    b.samples.push_back(s);
  }
  return b;
}

absl::StatusOr<Body> DecodeClock(Reader r, size_t count) {
  if (r.left() != count * kClockPointLen) return absl::InvalidArgumentError("clock batch of a wrong length");
  ClockBatch b;
  b.points.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    ClockPoint p;
    p.slot = static_cast<uint8_t>(r.Get(1));
    p.t_tx_ns = static_cast<int64_t>(r.Get(8));
    p.t_rx_ns = static_cast<int64_t>(r.Get(8));
    if (p.slot >= CW_MAX_SLOTS) return absl::InvalidArgumentError("clock point of an impossible slot");
    b.points.push_back(p);
  }
  return b;
}

absl::StatusOr<Body> DecodeTrips(Reader r, size_t count, bool by_nics) {
  if (r.left() != count * kTripLen + (by_nics ? kNicErrorsLen : 0)) {
    return absl::InvalidArgumentError("trip batch of a wrong length");
  }
  TripBatch b;
  b.by_nics = by_nics;
  if (by_nics) {
    b.error_ns = static_cast<int64_t>(r.Get(8));
    b.bound_ns = static_cast<int64_t>(r.Get(8));
    if (!NicErrorsInRange(b)) return absl::InvalidArgumentError("trips by NICs with impossible errors");
  }
  b.trips.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    sync::Trip t;
    for (int64_t* ns : {&t.t1_ns, &t.t2_ns, &t.t3_ns, &t.t4_ns}) {
      *ns = static_cast<int64_t>(r.Get(8));
      if (*ns < -kMaxTripNs || *ns > kMaxTripNs) return absl::InvalidArgumentError("trip at an impossible time");
    }
    b.trips.push_back(t);
  }
  return b;
}

absl::StatusOr<Body> DecodeLinks(Reader r, size_t count) {
  if (r.left() != count * kLinkLen) return absl::InvalidArgumentError("link batch of a wrong length");
  LinkBatch b;
  b.links.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    LinkRecord link;
    link.host_id = r.Get(8);
    link.disagreement_ns = static_cast<int64_t>(r.Get(8));
    link.error_ns = static_cast<int64_t>(r.Get(8));
    if (!LinkInRange(link)) return absl::InvalidArgumentError("link with an impossible difference or error");
    b.links.push_back(link);
  }
  return b;
}

absl::StatusOr<Body> DecodeChunks(Reader r, size_t count) {
  if (r.left() != kTimelineLen + count * kChunkArrivalLen)
    return absl::InvalidArgumentError("arrivals of chunks of a wrong length");
  ChunkArrivals b;
  b.timeline = r.Get(8);
  b.arrivals.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    ChunkArrival a;
    a.operation = r.Get(8);
    for (uint32_t* word : {&a.qpn, &a.number, &a.posted, &a.bound_ns}) *word = static_cast<uint32_t>(r.Get(4));
    a.fleet_ns = static_cast<int64_t>(r.Get(8));
    a.bytes = r.Get(8);
    if (!ChunkInRange(a)) return absl::InvalidArgumentError("arrival of a chunk with a number out of its range");
    b.arrivals.push_back(a);
  }
  return b;
}

absl::StatusOr<Body> DecodeDeath(Reader r, size_t count) {
  if (r.left() != kPathDeathLen + 4 * count) return absl::InvalidArgumentError("path's death of a wrong length");
  PathDeath death;
  death.slot = static_cast<uint8_t>(r.Get(1));
  if (death.slot >= CW_MAX_SLOTS || r.Get(3) != 0) return absl::InvalidArgumentError("death of an impossible slot");
  death.qpns.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    death.qpns.push_back(static_cast<uint32_t>(r.Get(4)));
    if (death.qpns.back() == 0 || death.qpns.back() > kMask24) {
      return absl::InvalidArgumentError("QPN 0 or of more than 24 bits");
    }
  }
  return death;
}

absl::StatusOr<Body> DecodeQuestion(Reader r, size_t count) {
  if (count != 0 || r.left() != kClassQuestionLen) return absl::InvalidArgumentError("question of a wrong length");
  ClassQuestion question;
  question.slot = static_cast<uint8_t>(r.Get(1));
  const uint64_t answer = r.Get(1);
  if (question.slot >= CW_MAX_SLOTS || answer > 1 || r.Get(2) != 0)
    return absl::InvalidArgumentError("question about an impossible slot");
  question.answer = answer == 1;
  question.token = static_cast<uint32_t>(r.Get(4));
  return question;
}

absl::StatusOr<Body> DecodeSize(Reader r, size_t count) {
  if (r.left() != kSizeReportLen || count != 0) return absl::InvalidArgumentError("report of a size of a wrong length");
  const uint64_t answer = r.Get(1);
  SizeReport report{.answer = answer == 1, .slot = static_cast<uint8_t>(r.Get(1))};
  if (answer > 1 || report.slot >= CW_MAX_SLOTS)
    return absl::InvalidArgumentError("size of an impossible slot's packets");
  report.bytes = static_cast<uint16_t>(r.Get(2));
  report.token = static_cast<uint32_t>(r.Get(4));
  report.mtu = static_cast<uint32_t>(r.Get(4));
  bool ended = false;
  for (size_t i = 0; i < kNicNameLen; ++i) {
    const auto c = static_cast<char>(r.Get(1));
    ended = ended || c == 0;
    if (c == 0) continue;
    // It is shown to people, as the strings of a Hello.
    if (ended || c <= 0x20 || c > 0x7e || i + 1 == kNicNameLen)
      return absl::InvalidArgumentError("name of a NIC that does not print");
    report.nic += c;
  }
  return report;
}

absl::StatusOr<Body> DecodeGaps(Reader r, size_t count) {
  if (r.left() != kGapHeaderLen + count * kGapLen)
    return absl::InvalidArgumentError("report of gaps of a wrong length");
  const uint64_t answer = r.Get(1);
  if (answer > 1 || r.Get(3) != 0)
    return absl::InvalidArgumentError("report of gaps that is neither question nor answer");
  GapReport report{.answer = answer == 1};
  report.flows.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto word = static_cast<uint32_t>(r.Get(4));
    GapReport::Flow flow{.qpn = word & kMask24, .known = (word & kFlagKnown) != 0};
    flow.gaps = static_cast<uint32_t>(r.Get(4));
    flow.packets = static_cast<uint32_t>(r.Get(4));
    if (flow.qpn == 0 || word >> 25 != 0) return absl::InvalidArgumentError("QPN 0 or of more than 24 bits");
    report.flows.push_back(flow);
  }
  return report;
}

Addr GetAddr(Reader& r) {
  Addr address;
  for (uint8_t& byte : address.bytes) byte = static_cast<uint8_t>(r.Get(1));
  return address;
}

absl::StatusOr<Body> DecodeMeasures(Reader r, size_t count) {
  if (count != 0 || r.left() != kNicMeasuresLen) return absl::InvalidArgumentError("word on a NIC of a wrong length");
  NicMeasures note{.nic = GetAddr(r)};
  const uint64_t measures = r.Get(1);
  if (measures > 1 || r.Get(3) != 0) return absl::InvalidArgumentError("word on a NIC that is neither yes nor no");
  note.measures = measures == 1;
  return note;
}

absl::StatusOr<Body> DecodeNicReports(Reader r, size_t count) {
  if (r.left() != count * kNicReportLen) return absl::InvalidArgumentError("NIC reports of a wrong length");
  NicReports b;
  for (size_t i = 0; i < count; ++i) {
    NicReport n;
    for (Addr* a : {&n.pair.local, &n.pair.remote, &n.carrier.local, &n.carrier.remote}) *a = GetAddr(r);
    n.tag = static_cast<uint8_t>(r.Get(1));
    const uint64_t bits = r.Get(1);
    if (n.tag > kNicTags || bits > 3 || r.Get(2) != 0) return absl::InvalidArgumentError("NIC report out of range");
    n.silent = (bits & 1) != 0;
    n.restores = (bits & 2) != 0;
    b.reports.push_back(n);
  }
  return b;
}

absl::StatusOr<Body> DecodeHello(Reader r, size_t count) {
  Hello h;
  h.host = r.GetString();
  h.version = r.GetString();
  if (!r.ok() || r.left() != 0 || count != 2) return absl::InvalidArgumentError("hello of a wrong length");
  if (h.host.size() > kMaxHost || h.version.size() > kMaxVersion) {
    return absl::InvalidArgumentError("hello with a string that is too long");
  }
  // These strings are shown to people: no control characters in terminals and logs.
  for (const std::string* s : {&h.host, &h.version}) {
    for (char c : *s) {
      if (c < 0x20 || c > 0x7e) return absl::InvalidArgumentError("hello with bytes that do not print");
    }
  }
  return h;
}

}  // namespace

bool TripBatch::operator==(const TripBatch& other) const {
  if (by_nics != other.by_nics || error_ns != other.error_ns || bound_ns != other.bound_ns) return false;
  return std::equal(trips.begin(), trips.end(), other.trips.begin(), other.trips.end(),
                    [](const sync::Trip& a, const sync::Trip& b) {
                      return a.t1_ns == b.t1_ns && a.t2_ns == b.t2_ns && a.t3_ns == b.t3_ns && a.t4_ns == b.t4_ns;
                    });
}

absl::StatusOr<std::vector<uint8_t>> EncodeBody(const Body& body) {
  return std::visit([](const auto& b) { return Encode(b); }, body);
}

absl::StatusOr<Body> DecodeBody(absl::Span<const uint8_t> bytes) {
  Reader r(bytes);
  const uint64_t kind = r.Get(1);
  const uint64_t version = r.Get(1);
  const size_t count = r.Get(2);
  if (!r.ok()) return absl::InvalidArgumentError("message body too short");
  if (version != kBodyVersion) {
    return absl::UnimplementedError(absl::StrFormat("message body of version %d, ours is %d", version, kBodyVersion));
  }
  switch (kind) {
    case kSamples:
      return DecodeSamples(r, count);
    case kClock:
      return DecodeClock(r, count);
    case kHello:
      return DecodeHello(r, count);
    case kTrips:
      return DecodeTrips(r, count, false);
    case kNicTrips:
      return DecodeTrips(r, count, true);
    case kClaim:
      return DecodeClaim(r, count);
    case kLinks:
      return DecodeLinks(r, count);
    case kNicReports:
      return DecodeNicReports(r, count);
    case kQuestion:
      return DecodeQuestion(r, count);
    case kChunks:
      return DecodeChunks(r, count);
    case kDeath:
      return DecodeDeath(r, count);
    case kGaps:
      return DecodeGaps(r, count);
    case kSize:
      return DecodeSize(r, count);
    case kMeasures:
      return DecodeMeasures(r, count);
    default:
      return absl::UnimplementedError(absl::StrFormat("message body of unknown kind %d", kind));
  }
}

}  // namespace cw::probe
