// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of the spool: no read outside of it, whole frames are found behind damage, what is found encodes
// to the very bytes that it came from, and the work is bounded. A second way in makes frames of the input and then
// damages them, since chance finds no checksum.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "userspace/uplink/spool_format.h"

namespace {

using cw::uplink::FrameHead;

void Require(bool holds) {
  if (!holds) abort();
}

uint64_t ScanExactly(absl::string_view bytes) {
  std::unique_ptr<char[]> exact(new char[bytes.size()]);  // ends where the bytes end, so that one too far is seen
  std::copy(bytes.begin(), bytes.end(), exact.get());
  const absl::string_view view(exact.get(), bytes.size());
  size_t last_end = 0;
  const cw::uplink::Scan scan =
      cw::uplink::ScanSegment(view, [&](size_t offset, const FrameHead& head, absl::string_view record) {
        Require(offset >= last_end);
        const std::string again = cw::uplink::EncodeFrame(head, record);
        Require(view.substr(offset, again.size()) == absl::string_view(again));
        last_end = offset + again.size();
      });
  Require(scan.good_end <= bytes.size() && scan.damaged_bytes <= scan.good_end);
  Require(scan.frames == 0 || scan.good_end == last_end);
  return scan.frames;
}

std::string FramesOf(absl::string_view input, size_t piece) {
  std::string bytes(cw::uplink::kSegmentHead);
  for (size_t at = 0; at < input.size(); at += piece) {
    bytes += cw::uplink::EncodeFrame({cw::uplink::Kind::kEvent, at + 1, piece, at, 5}, input.substr(at, piece));
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  ScanExactly(input);
  if (size < 4) return 0;
  const size_t piece = 1 + data[0] % 64;
  std::string bytes = FramesOf(input.substr(3), piece);
  const uint64_t frames = (size - 3 + piece - 1) / piece;
  Require(ScanExactly(bytes) == frames);
  // One wrong byte costs one frame; in the head of the file it costs the file.
  const size_t at = cw::uplink::kSegmentHead.size() + (data[1] * 256u + data[2]) % (bytes.size() - 8);
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  Require(ScanExactly(bytes) == frames - 1);
  return 0;
}
