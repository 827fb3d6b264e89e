// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/ring_copy.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/uplink/spool_format.h"

namespace cw::uplink {
namespace {

namespace pb = cwfabric::v1;

constexpr int64_t kSettleNs = 2'000'000'000;            // the second that ends the span is written soon after it
constexpr int64_t kLastNs = 4'000'000'000'000'000'000;  // the year 2096
constexpr uint64_t kLeastRequest = 64 << 10;
constexpr int kNamesAtOnce = 1000;

}  // namespace

absl::StatusOr<RingCopy> RingCopy::Begin(const std::string& path, const pb::RingRequest& request, const Ring& ring) {
  if (request.id() == 0 || request.from_ns() <= 0 || request.to_ns() <= request.from_ns() || request.to_ns() > kLastNs)
    return absl::InvalidArgumentError("a request for a span of the ring that is none");
  if (request.to_ns() - request.from_ns() > kMostSpanNs)
    return absl::InvalidArgumentError("more than an hour of the ring at once: ask for less");
  unlink(path.c_str());
  absl::StatusOr<Segment> file = Segment::Create(path, FileCalls::Real());
  if (!file.ok()) return file.status();
  RingCopy copy(*std::move(file), request);
  copy.request_.set_most_bytes(std::clamp(request.most_bytes(), kLeastRequest, kMostBytes));
  copy.spot_ = ring.Find(request.from_ns());
  if (ring.oldest_ns() == 0 || ring.oldest_ns() > request.from_ns() + 2 * kSettleNs)
    copy.reason_ = "the ring does not reach back to the beginning of the span";
  return copy;
}

void RingCopy::End(const std::string& reason) {
  complete_ = true;
  if (!reason.empty()) reason_ = reason;
  if (reason_.empty() && lost_) reason_ = "a part was overwritten before it was taken: raise fleet.ring_mib";
  if (reason_.empty() && records_.empty()) reason_ = "the ring has nothing of that time";
  if (reason_.empty() && thinned_ > 0)
    reason_ = absl::StrCat("raw samples of ", thinned_, " records are left out, for want of bytes: ask for less time");
}

bool RingCopy::Step(Ring& ring, int64_t now_ns) {
  if (complete_) return false;
  const uint64_t damaged_before = ring.damaged_bytes();
  const absl::StatusOr<std::vector<RingRecord>> records = ring.Read(spot_, &lost_);
  damaged_bytes_ += ring.damaged_bytes() - damaged_before;
  if (!records.ok()) {
    End(std::string(records.status().message()));
    return true;
  }
  for (const RingRecord& record : *records) {
    if (complete_) break;
    read_bytes_ += record.bytes.size();
    Take(record);
  }
  if (records->empty() && !complete_ && now_ns > request_.to_ns() + kSettleNs) End("");
  return !records->empty() || complete_;
}

void RingCopy::Take(const RingRecord& record) {
  pb::RingSecond second;
  if (!second.ParseFromString(record.bytes)) {
    damaged_bytes_ += record.bytes.size();
    return;
  }
  if (second.from_ns() >= request_.to_ns()) return End("");
  if (second.to_ns() <= request_.from_ns()) {
    for (const pb::RingName& name : second.names()) {
      if (names_.size() < 100'000) names_[{second.run(), name.path()}] = name;
    }
    return;
  }
  if (!begun_) TellNames(second);
  begun_ = true;
  Keep(second);
}

// What stood before the span is needed to read it.
void RingCopy::TellNames(const pb::RingSecond& second) {
  pb::RingSecond out;
  const auto flush = [&] {
    if (out.names_size() > 0) Keep(out);
    out.Clear();
  };
  for (auto& [key, name] : names_) {
    if (out.names_size() >= kNamesAtOnce || (out.names_size() > 0 && out.run() != key.first)) flush();
    out.set_run(key.first);
    out.set_from_ns(second.from_ns());
    out.set_to_ns(second.from_ns());
    *out.add_names() = name;
  }
  flush();
  names_.clear();
}

// Bytes are shared out evenly over the span, so that its end has its part.
bool RingCopy::Keep(const pb::RingSecond& second) {
  const double span = static_cast<double>(request_.to_ns() - request_.from_ns());
  const double share = std::clamp(static_cast<double>(second.to_ns() - request_.from_ns()) / span, 0.02, 1.0);
  const auto most = static_cast<double>(request_.most_bytes());
  std::string bytes = second.SerializeAsString();
  if (static_cast<double>(file_.size() + bytes.size()) > most * share) {
    pb::RingSecond thin = second;
    for (pb::RingPath& path : *thin.mutable_paths()) {
      path.clear_after_us();
      path.clear_delay_ns();
    }
    thin.set_thinned(true);
    bytes = thin.SerializeAsString();
    ++thinned_;
  }
  if (static_cast<double>(file_.size() + bytes.size() + kFrameOverhead) > most) {
    End("it is more than the bytes that were asked for: ask for a shorter time");
    return false;
  }
  const std::string frame = EncodeFrame({Kind::kDetail, records_.size() + 1, second.run(), 1, second.to_ns()}, bytes);
  const absl::StatusOr<uint64_t> at = file_.Append(frame, false, FileCalls::Real());
  if (!at.ok()) {
    End(std::string(at.status().message()));
    return false;
  }
  records_.emplace_back(*at, static_cast<uint32_t>(frame.size()));
  return true;
}

std::optional<pb::RingChunk> RingCopy::Chunk(size_t& first) {
  size_t bytes = 0, last = first;
  while (last < records_.size() && (last == first || bytes + records_[last].second <= kChunkBytes))
    bytes += records_[last++].second;
  const bool full = last < records_.size();
  if (last == first || (!full && !complete_)) return std::nullopt;
  pb::RingChunk chunk;
  for (; first < last; ++first) {
    const absl::StatusOr<std::string> frame = file_.Read(records_[first].first, records_[first].second);
    FrameHead head;
    absl::string_view record;
    if (frame.ok() && DecodeFrame(*frame, &head, &record) == records_[first].second)
      chunk.add_seconds(record.data(), record.size());
    else
      damaged_bytes_ += records_[first].second;
  }
  return chunk;
}

}  // namespace cw::uplink
