// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/incidents/bundle.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/model/regular_file.h"
#include "userspace/uplink/spool_format.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
using uplink::kSegmentHead;

constexpr uint64_t kMostFile = uint64_t{2} << 30;
constexpr uint64_t kRun = 1;
constexpr int64_t kLastNs = 4'000'000'000'000'000'000;           // the year 2096; what lies beyond is no time
constexpr size_t kMostSeconds = 100'000, kMostEvents = 200'000;  // of a host; of all

absl::Status FileError(absl::string_view what, const std::string& path) {
  if (errno == ENOSPC || errno == EDQUOT)
    return absl::ResourceExhaustedError(absl::StrCat("no room for ", path, ": free some on its file system"));
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status WriteBytes(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return FileError("write", path);
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

std::string FrameOf(uint64_t position, const pb::IncidentRecord& record) {
  return uplink::EncodeFrame({uplink::Kind::kDetail, position, kRun, position, 0}, record.SerializeAsString());
}

absl::Status CheckMark(absl::string_view bytes) {
  if (absl::StartsWith(bytes, kBundleMark)) return absl::OkStatus();
  if (absl::StartsWith(bytes, kBundleMark.substr(0, 7)))
    return absl::FailedPreconditionError("another release wrote this incident: use that");
  return absl::InvalidArgumentError("this is no incident: its first bytes are not an incident's");
}

// Of memory for each byte of a second: samples take eight, and what is made of empty messages alone far more.
constexpr size_t kMostInflated = 24;

bool IsTime(int64_t ns) { return ns >= 0 && ns < kLastNs; }

class BundleReader {
 public:
  absl::StatusOr<Bundle> Read(absl::string_view bytes) {
    if (absl::Status status = CheckMark(bytes); !status.ok()) return status;
    const absl::string_view rest = bytes.substr(kBundleMark.size());
    const uplink::Scan scan =
        uplink::ScanSegment(rest, [&](size_t, const uplink::FrameHead&, absl::string_view record) { Take(record); });
    if (!has_head_) return absl::InvalidArgumentError("this incident has no head any more: it is damaged at its start");
    out_.damaged_bytes += scan.damaged_bytes + rest.size() - scan.good_end;
    out_.cut_off = !ended_ || records_ < told_;
    AddRingEvents();
    for (auto& [host, seconds] : out_.seconds)
      std::stable_sort(seconds.begin(), seconds.end(),
                       [](const auto& a, const auto& b) { return a.to_ns() < b.to_ns(); });
    std::stable_sort(out_.events.begin(), out_.events.end(),
                     [](const auto& a, const auto& b) { return a.event().time_ns() < b.event().time_ns(); });
    return std::move(out_);
  }

 private:
  void Take(absl::string_view bytes) {
    pb::IncidentRecord record;
    if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      out_.damaged_bytes += bytes.size();
      return;
    }
    records_ += record.kind_case() != pb::IncidentRecord::kRecords;
    if (record.has_head() && !has_head_) {
      out_.head = std::move(*record.mutable_head());
      if (!IsTime(out_.head.pivot_ns())) out_.head.set_pivot_ns(0);
      has_head_ = true;
    }
    if (record.has_seconds()) TakeSeconds(record.seconds());
    if (record.has_events()) {
      for (const pb::FleetEventOf& event : record.events().events()) {
        const bool good = IsTime(event.event().time_ns()) && out_.events.size() < kMostEvents;
        good ? out_.events.push_back(event) : void(out_.damaged_bytes += event.ByteSizeLong());
      }
    }
    if (record.kind_case() == pb::IncidentRecord::kRecords) {
      ended_ = true;
      told_ = record.records();
    }
  }

  // A host that was connected anew sends all again.
  void TakeSeconds(const pb::IncidentSeconds& in) {
    std::vector<pb::RingSecond>& seconds = out_.seconds[in.host()];
    for (const std::string& bytes : in.seconds()) {
      pb::RingSecond second;
      if (!second.ParseFromString(bytes) || second.to_ns() < second.from_ns() || !IsTime(second.from_ns()) ||
          !IsTime(second.to_ns()) || seconds.size() >= kMostSeconds ||
          second.SpaceUsedLong() > sizeof(second) + kMostInflated * bytes.size()) {
        out_.damaged_bytes += bytes.size();
      } else if (seen_.insert(absl::HashOf(in.host(), bytes)).second) {
        seconds.push_back(std::move(second));
      }
    }
  }

  // Of a host that could not tell the service then.
  void AddRingEvents() {
    std::set<std::tuple<std::string, uint64_t, int64_t>> known;
    const auto key = [](const std::string& host, const pb::Event& event) {
      return std::tuple(host, event.seq(), event.time_unix_ns());
    };
    for (const pb::FleetEventOf& event : out_.events) known.insert(key(event.host(), event.event().event()));
    for (auto& [host, seconds] : out_.seconds) {
      for (pb::RingSecond& second : seconds) {
        for (pb::Event& event : *second.mutable_events()) {
          if (out_.events.size() >= kMostEvents || !IsTime(event.time_unix_ns()) ||
              !known.insert(key(host, event)).second)
            continue;
          pb::FleetEventOf& out = out_.events.emplace_back();
          out.set_host(host);
          out.set_run(second.run());
          out.mutable_event()->set_time_ns(event.time_unix_ns());
          out.mutable_event()->set_bound_ns(second.bound_ns());
          *out.mutable_event()->mutable_event() = std::move(event);
        }
        second.clear_events();
      }
    }
  }

  Bundle out_;
  bool has_head_ = false, ended_ = false;
  uint32_t records_ = 0, told_ = 0;
  absl::flat_hash_set<size_t> seen_;
};

}  // namespace

absl::StatusOr<Bundle> ReadBundle(absl::string_view bytes) { return BundleReader().Read(bytes); }

absl::StatusOr<Bundle> LoadBundle(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadRegularFile(path, kMostFile);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<Bundle> bundle = ReadBundle(*bytes);
  if (bundle.ok()) return bundle;
  return absl::Status(bundle.status().code(), absl::StrCat(path, ": ", bundle.status().message()));
}

absl::StatusOr<pb::Incident> ReadHead(const std::string& path) {
  if (absl::Status good = CheckRegularFile(path); !good.ok()) return good;
  std::ifstream file(path, std::ios::binary);
  std::string bytes(kBundleMark.size() + kSegmentHead.size() + uplink::kFrameOverhead + kMostBundleRecord, 0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  if (absl::Status status = CheckMark(bytes); !status.ok()) return status;
  uplink::FrameHead head;
  absl::string_view record;
  const size_t at = std::min(bytes.size(), kBundleMark.size() + kSegmentHead.size());
  pb::IncidentRecord first;
  if (uplink::DecodeFrame(absl::string_view(bytes).substr(at), &head, &record) == 0 ||
      !first.ParseFromArray(record.data(), static_cast<int>(record.size())) || !first.has_head())
    return absl::InvalidArgumentError("this incident has no head any more: it is damaged at its start");
  return std::move(*first.mutable_head());
}

absl::StatusOr<std::unique_ptr<BundleWriter>> BundleWriter::Create(const std::string& path) {
  const std::string part = path + ".part";
  const int fd = open(part.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return FileError("make", part);
  return std::unique_ptr<BundleWriter>(new BundleWriter(path, fd));
}

BundleWriter::~BundleWriter() {
  close(fd_);
  unlink((path_ + ".part").c_str());
  unlink((path_ + ".new").c_str());
}

absl::Status BundleWriter::Add(const pb::IncidentRecord& record) {
  if (record.ByteSizeLong() > kMostBundleRecord)
    return absl::InvalidArgumentError(absl::StrCat("a record of ", record.ByteSizeLong(), " bytes"));
  const std::string frame = FrameOf(records_ + 2, record);  // 1 is the head's
  if (absl::Status status = WriteBytes(fd_, frame, path_); !status.ok()) {
    // Half a frame would be no harm to a reader, but room.
    if (ftruncate(fd_, static_cast<off_t>(bytes_)) == 0) lseek(fd_, static_cast<off_t>(bytes_), SEEK_SET);
    return status;
  }
  bytes_ += frame.size();
  ++records_;
  return absl::OkStatus();
}

absl::Status BundleWriter::WriteTo(const std::string& to, const std::string& head, const std::string& end) {
  const int fd = open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return FileError("make", to);
  absl::Status status = WriteBytes(fd, head, to);
  std::string piece(kMostBundleRecord, 0);
  for (uint64_t at = 0; status.ok() && at < bytes_;) {
    const ssize_t got = pread(fd_, piece.data(), std::min<uint64_t>(piece.size(), bytes_ - at), static_cast<off_t>(at));
    if (got <= 0) status = FileError("read", path_);
    if (got > 0) status = WriteBytes(fd, absl::string_view(piece).substr(0, static_cast<size_t>(got)), to);
    at += static_cast<uint64_t>(std::max<ssize_t>(0, got));
  }
  if (status.ok()) status = WriteBytes(fd, end, to);
  if (status.ok() && fsync(fd) != 0) status = FileError("sync", to);
  close(fd);
  return status;
}

absl::Status BundleWriter::Finish(pb::Incident head) {
  pb::IncidentRecord first, last;
  last.set_records(records_ + 1);
  const std::string end = FrameOf(records_ + 2, last);
  head.set_bytes(bytes_);
  // A list and a replay do without it; a head that does not fit would be no incident.
  if (head.ByteSizeLong() > kMostBundleRecord / 2) head.clear_topology();
  if (head.ByteSizeLong() > kMostBundleRecord / 2) head.clear_fabric();
  *first.mutable_head() = std::move(head);
  const std::string to = path_ + ".new";
  absl::Status status = WriteTo(to, absl::StrCat(kBundleMark, kSegmentHead, FrameOf(1, first)), end);
  if (status.ok() && rename(to.c_str(), path_.c_str()) != 0) status = FileError("rename", to);
  return status;
}

}  // namespace cw::fleet
