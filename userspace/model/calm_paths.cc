// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/calm_paths.h"

#include <zlib.h>

#include <limits>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "userspace/model/varint.h"

namespace cw {
namespace {

constexpr int kRawDeflate = -15;  // window bits; negative: no header, no checksum: TLS has one
constexpr int kMemoryLevel = 8;

absl::Status DamagedPaths(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("damaged paths: ", what, "; their sender is of another release or lies"));
}

Bytef* In(absl::string_view bytes) { return reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data())); }

std::string Deflate(absl::string_view plain) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kRawDeflate, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
    return "";
  const absl::Cleanup end = [&stream] { deflateEnd(&stream); };
  std::string out(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = In(plain);
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) return "";
  out.resize(stream.total_out);
  return out;
}

absl::StatusOr<std::string> Inflate(absl::string_view bytes) {
  if (bytes.size() > kMostCalmBytes) return DamagedPaths("too many bytes");
  z_stream stream{};
  if (inflateInit2(&stream, kRawDeflate) != Z_OK) return absl::ResourceExhaustedError("no memory for inflating");
  const absl::Cleanup end = [&stream] { inflateEnd(&stream); };
  std::string out, step(size_t{16} << 10, '\0');
  stream.next_in = In(bytes);
  stream.avail_in = static_cast<uInt>(bytes.size());
  for (int result = Z_OK; result != Z_STREAM_END;) {
    if (out.size() > kMostCalmBytes) return DamagedPaths("more than they may be");
    stream.next_out = reinterpret_cast<Bytef*>(step.data());
    stream.avail_out = static_cast<uInt>(step.size());
    result = inflate(&stream, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END) return DamagedPaths("they cannot be inflated");
    out.append(step.data(), step.size() - stream.avail_out);
  }
  if (stream.avail_in != 0) return DamagedPaths("something behind their end");
  if (out.size() > kMostCalmBytes) return DamagedPaths("more than they may be");
  return out;
}

}  // namespace

std::string PackCalmPaths(absl::Span<const CalmPath> paths) {
  if (paths.empty()) return "";
  std::string numbers, bases, lengths, queues;
  uint64_t expected = 0, base = 0;
  for (const CalmPath& path : paths) {
    if (path.path < expected) return "";
    PutVarint(path.path - expected, &numbers);
    PutVarint(ZigZag(static_cast<int64_t>(path.base_ns - base)), &bases);
    PutVarint(path.queue.size(), &lengths);
    queues += path.queue;
    expected = uint64_t{path.path} + 1;
    base = path.base_ns;
  }
  std::string plain;
  PutVarint(paths.size(), &plain);
  absl::StrAppend(&plain, numbers, bases, lengths, queues);
  return plain.size() > kMostCalmBytes ? "" : Deflate(plain);
}

absl::StatusOr<std::vector<CalmPath>> UnpackCalmPaths(absl::string_view bytes, size_t most) {
  if (bytes.empty()) return std::vector<CalmPath>();
  const absl::StatusOr<std::string> plain = Inflate(bytes);
  if (!plain.ok()) return plain.status();
  absl::string_view rest = *plain;
  uint64_t count = 0, value = 0;
  if (!TakeVarint(&rest, &count)) return DamagedPaths("no number of paths");
  if (count == 0 || count > most) return DamagedPaths(absl::StrCat(count, " paths; 1 to ", most));
  std::vector<CalmPath> paths(count);
  uint64_t expected = 0, base = 0;
  for (CalmPath& path : paths) {
    constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
    if (!TakeVarint(&rest, &value) || value > kMost || expected + value > kMost)
      return DamagedPaths("a path's number beyond 32 bits");
    path.path = static_cast<uint32_t>(expected + value);
    expected = uint64_t{path.path} + 1;
  }
  for (CalmPath& path : paths) {
    if (!TakeVarint(&rest, &value)) return DamagedPaths("fewer bases than paths");
    path.base_ns = base += static_cast<uint64_t>(UnZigZag(value));
  }
  std::vector<uint64_t> lengths(count);
  for (uint64_t& length : lengths) {
    if (!TakeVarint(&rest, &length)) return DamagedPaths("fewer delays than paths");
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    if (lengths[i] > rest.size()) return DamagedPaths("delays that are not there");
    paths[i].queue = std::string(rest.substr(0, lengths[i]));
    rest.remove_prefix(lengths[i]);
  }
  if (!rest.empty()) return DamagedPaths("something behind the last delay");
  return paths;
}

}  // namespace cw
