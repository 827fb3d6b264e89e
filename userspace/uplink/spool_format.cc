// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/spool_format.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "userspace/model/bytes.h"
#include "userspace/model/crc32c.h"

namespace cw::uplink {
namespace {

// Where frames are sought behind damage; bytes of records that look like it cost one look each.
constexpr absl::string_view kFrameMark = "cwF\xf1";
constexpr size_t kPrefix = 16;  // mark, length, CRC of the length, CRC of the body
constexpr size_t kBodyHead = kFrameOverhead - kPrefix;
constexpr size_t kSearchFactor = 8;  // checksums over so many times a segment's size are enough to look behind damage

template <typename Archive, typename Head>
void WalkHead(Archive& a, Head& head, uint8_t& kind) {
  a.Number(kind);
  a.Number(head.position);
  a.Number(head.run);
  a.Number(head.sequence);
  a.Number(head.time_ns);
}

uint32_t WordOf(absl::string_view bytes, size_t at) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

// The length has a checksum of its own, so that a wrong one is known without reading what it claims.
size_t BodySize(absl::string_view bytes) {
  if (bytes.size() < kPrefix || bytes.substr(0, 4) != kFrameMark) return 0;
  if (WordOf(bytes, 8) != Crc32c(bytes.substr(4, 4))) return 0;
  const uint32_t size = WordOf(bytes, 4);
  if (size < kBodyHead || size > kBodyHead + kMaxRecordBytes || size > bytes.size() - kPrefix) return 0;
  return size;
}

}  // namespace

std::string EncodeFrame(const FrameHead& head, absl::string_view record) {
  ByteWriter fields;
  auto kind = static_cast<uint8_t>(head.kind);
  WalkHead(fields, head, kind);
  const std::string body = absl::StrCat(fields.bytes(), record);
  ByteWriter length;
  length.Number(static_cast<uint32_t>(body.size()));
  ByteWriter sums;
  sums.Number(Crc32c(length.bytes()));
  sums.Number(Crc32c(body));
  return absl::StrCat(kFrameMark, length.bytes(), sums.bytes(), body);
}

size_t DecodeFrame(absl::string_view bytes, FrameHead* head, absl::string_view* record) {
  const size_t size = BodySize(bytes);
  if (size == 0) return 0;
  const absl::string_view body = bytes.substr(kPrefix, size);
  if (Crc32c(body) != WordOf(bytes, 12)) return 0;
  ByteReader reader(body);
  uint8_t kind = 0;
  WalkHead(reader, *head, kind);
  if (kind != static_cast<uint8_t>(Kind::kEvent) && kind != static_cast<uint8_t>(Kind::kDetail)) return 0;
  head->kind = static_cast<Kind>(kind);
  *record = body.substr(kBodyHead);
  return kPrefix + size;
}

Scan ScanSegment(absl::string_view bytes,
                 const std::function<void(size_t, const FrameHead&, absl::string_view)>& frame) {
  Scan scan;
  if (bytes.substr(0, kSegmentHead.size()) != kSegmentHead) return scan;
  scan.good_end = kSegmentHead.size();
  size_t at = scan.good_end, budget = kSearchFactor * bytes.size();
  while (at < bytes.size()) {
    FrameHead head;
    absl::string_view record;
    const size_t claimed = BodySize(bytes.substr(at));
    if (claimed > budget) break;
    budget -= claimed;
    const size_t size = claimed == 0 ? 0 : DecodeFrame(bytes.substr(at), &head, &record);
    if (size == 0) {
      at = bytes.find(kFrameMark, at + 1);
      if (at == absl::string_view::npos) break;
      continue;
    }
    scan.damaged_bytes += at - scan.good_end;
    ++scan.frames;
    frame(at, head, record);
    at += size;
    scan.good_end = at;
  }
  return scan;
}

}  // namespace cw::uplink
