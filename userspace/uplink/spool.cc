// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/spool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::uplink {
namespace {

constexpr uint64_t kMostSegmentBytes = 4 << 20, kLeastSegmentBytes = 4096;
constexpr uint64_t kMostFileBytes = kMostSegmentBytes + kMaxRecordBytes + 4096;  // a larger one is not ours
constexpr uint64_t kLastPosition = uint64_t{1} << 62;  // a rotten one must not end all counting

absl::string_view Ending(Kind kind) { return kind == Kind::kEvent ? ".event" : ".detail"; }

absl::StatusOr<int> LockFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make ", folder, ": ", error.message()));
  chmod(folder.c_str(), 0700);
  const std::string path = folder + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open " + path);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  close(fd);
  return absl::FailedPreconditionError(
      absl::StrCat(folder, " is another agent's spool: give each a fleet.spool of its own"));
}

}  // namespace

Spool::Spool(std::string folder, const SpoolLimits& limits, const FileCalls& calls, int lock)
    : folder_(std::move(folder)), limits_(limits), calls_(calls), lock_(lock) {}

Spool::~Spool() {
  if (lock_ >= 0) close(lock_);
}

absl::StatusOr<std::unique_ptr<Spool>> Spool::Open(const std::string& folder, const SpoolLimits& limits, absl::Time now,
                                                   const FileCalls& calls) {
  const absl::StatusOr<int> lock = LockFolder(folder);
  if (!lock.ok()) return lock.status();
  std::unique_ptr<Spool> spool(new Spool(folder, limits, calls, *lock));
  if (absl::Status status = spool->Load(); !status.ok()) return status;
  if (absl::Status status = spool->Expire(now); !status.ok()) return status;
  return spool;
}

absl::Status Spool::Load() {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot list ", folder_, ": ", error.message()));
  std::sort(names.begin(), names.end());  // by first position
  for (const std::string& name : names) {
    for (const Kind kind : {Kind::kEvent, Kind::kDetail}) {
      if (!absl::EndsWith(name, Ending(kind))) continue;
      if (absl::Status status = LoadFile(name, kind); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Spool::LoadFile(const std::string& name, Kind kind) {
  const std::string path = folder_ + "/" + name;
  std::error_code error;
  const uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error || file_bytes > kMostFileBytes) {
    state_.damaged_bytes += error ? 0 : file_bytes;
    unlink(path.c_str());
    return absl::OkStatus();
  }
  std::string bytes;
  absl::StatusOr<Segment> file = Segment::Open(path, &bytes);
  if (!file.ok()) return file.status();
  if (absl::StartsWith(bytes, "CWSPOOL") && bytes.size() >= kSegmentHead.size() &&
      !absl::StartsWith(bytes, kSegmentHead)) {
    return absl::FailedPreconditionError(path + " was written by another release: use that, or remove the file");
  }
  Part part{.file = *std::move(file)};
  Stream& stream = Of(kind);
  uint64_t last = stream.empty() ? 0 : stream.back().entries.back().position;
  const Scan scan = ScanSegment(bytes, [&](size_t offset, const FrameHead& head, absl::string_view record) {
    // A copy of a file, or one of the other kind: not what this spool wrote here.
    if (head.kind != kind || head.position <= last || head.position > kLastPosition) return;
    last = head.position;
    part.entries.push_back({head.position, head.run, head.sequence, head.time_ns, static_cast<uint32_t>(offset),
                            static_cast<uint32_t>(record.size() + kFrameOverhead)});
  });
  state_.damaged_bytes += scan.damaged_bytes + (bytes.size() - scan.good_end);
  if (part.entries.empty()) return part.file.Remove();
  if (absl::Status status = part.file.Truncate(scan.good_end); !status.ok()) return status;
  part.open = part.entries.size();
  state_.records += part.open;
  state_.bytes += part.file.size();
  next_position_ = std::max(next_position_, last + 1);
  stream.push_back(std::move(part));
  return absl::OkStatus();
}

absl::StatusOr<bool> Spool::DropOldest(Kind kind) {
  Stream& stream = Of(kind);
  if (stream.empty()) return false;
  Part& part = stream.front();
  if (absl::Status status = part.file.Remove(); !status.ok()) return status;
  (kind == Kind::kEvent ? state_.dropped_events : state_.dropped_detail) += part.open;
  if (part.open > 0) state_.dropped_bytes += part.file.size();
  state_.records -= part.open;
  state_.bytes -= part.file.size();
  stream.pop_front();
  return true;
}

// By the spool's own bounds; a full disk shows when it is written.
absl::Status Spool::MakeRoom(Kind kind, size_t bytes) {
  const auto full = [&] { return state_.bytes + bytes > limits_.bytes || state_.records >= limits_.records; };
  while (full()) {
    absl::StatusOr<bool> dropped = DropOldest(Kind::kDetail);
    if (dropped.ok() && !*dropped && kind == Kind::kEvent) dropped = DropOldest(Kind::kEvent);
    if (!dropped.ok()) return dropped.status();
    if (*dropped) continue;
    if (kind == Kind::kDetail) ++state_.dropped_detail;
    return absl::ResourceExhaustedError(absl::StrCat("the spool in ", folder_, " has no room for ", bytes, " bytes of ",
                                                     kind == Kind::kEvent ? "events" : "detail beside its events",
                                                     ": connect the fleet service, or raise fleet.spool_bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Spool::Part*> Spool::PartToWrite(Kind kind) {
  Stream& stream = Of(kind);
  const uint64_t segment = std::clamp(limits_.bytes / 16, kLeastSegmentBytes, kMostSegmentBytes);
  if (!stream.empty() && stream.back().file.size() < segment) return &stream.back();
  const std::string path = absl::StrFormat("%s/%016x%s", folder_, next_position_, Ending(kind));
  absl::StatusOr<Segment> file = Segment::Create(path, calls_);
  if (!file.ok()) return file.status();
  state_.bytes += file->size();
  stream.push_back({.file = *std::move(file)});
  return &stream.back();
}

absl::Status Spool::Append(Kind kind, uint64_t run, uint64_t sequence, absl::string_view record, absl::Time now) {
  if (record.size() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a record of ", record.size(), " bytes; at most ", kMaxRecordBytes));
  }
  if (absl::Status status = Expire(now); !status.ok()) return status;
  const FrameHead head{kind, next_position_, run, sequence, absl::ToUnixNanos(now)};
  const std::string frame = EncodeFrame(head, record);
  if (absl::Status status = MakeRoom(kind, frame.size() + kSegmentHead.size()); !status.ok()) return status;
  for (;;) {
    const absl::StatusOr<Part*> part = PartToWrite(kind);
    const bool sync = kind == Kind::kEvent && limits_.sync_events;
    const absl::StatusOr<uint64_t> at =
        part.ok() ? (*part)->file.Append(frame, sync, calls_) : absl::StatusOr<uint64_t>(part.status());
    if (at.ok()) {
      (*part)->entries.push_back({head.position, run, sequence, head.time_ns, static_cast<uint32_t>(*at),
                                  static_cast<uint32_t>(frame.size())});
      ++(*part)->open;
      ++next_position_;
      ++state_.records;
      state_.bytes += frame.size();
      return absl::OkStatus();
    }
    if (part.ok() && (*part)->entries.empty()) {  // the file that was made for it
      state_.bytes -= (*part)->file.size();
      (*part)->file.Remove().IgnoreError();
      Of(kind).pop_back();
    }
    if (!absl::IsResourceExhausted(at.status())) return at.status();
    const absl::StatusOr<bool> dropped = DropOldest(Kind::kDetail);
    if (dropped.ok() && *dropped) continue;
    if (kind == Kind::kDetail) ++state_.dropped_detail;
    return at.status();
  }
}

void Spool::Done(Part& part, Entry& entry) {
  if (entry.done) return;
  entry.done = true;
  --part.open;
  --state_.records;
}

absl::Status Spool::Settle(Stream& stream) {
  while (!stream.empty() && stream.front().open == 0) {
    Part& part = stream.front();
    if (absl::Status status = part.file.Remove(); !status.ok()) return status;
    state_.bytes -= part.file.size();
    stream.pop_front();
  }
  return absl::OkStatus();
}

absl::Status Spool::Acknowledge(uint64_t run, uint64_t through_sequence) {
  for (Stream& stream : streams_) {
    bool beyond = false;  // sequences ascend within a run
    for (Part& part : stream) {
      for (Entry& entry : part.entries) {
        beyond = entry.run == run && entry.sequence > through_sequence;
        if (beyond) break;
        if (entry.run == run) Done(part, entry);
      }
      if (beyond) break;
    }
    if (absl::Status status = Settle(stream); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Spool::Expire(absl::Time now) {
  if (limits_.clock_is_right && !limits_.clock_is_right()) return absl::OkStatus();
  const int64_t oldest_ns = absl::ToUnixNanos(now - limits_.age);
  for (const Kind kind : {Kind::kDetail, Kind::kEvent}) {
    while (!Of(kind).empty() && Of(kind).front().entries.back().time_ns < oldest_ns) {
      if (const absl::StatusOr<bool> dropped = DropOldest(kind); !dropped.ok()) return dropped.status();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SpoolRecord>> Spool::After(uint64_t position, size_t most_bytes) {
  struct Found {
    Part* part;
    Entry* entry;
  };
  std::vector<Found> found;
  for (Stream& stream : streams_) {
    size_t bytes = 0;  // a stream alone may fill the answer
    for (Part& part : stream) {
      auto it = std::upper_bound(part.entries.begin(), part.entries.end(), position,
                                 [](uint64_t p, const Entry& e) { return p < e.position; });
      for (; it != part.entries.end() && bytes <= most_bytes; ++it) {
        if (it->done) continue;
        found.push_back({&part, &*it});
        bytes += it->size;
      }
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.entry->position < b.entry->position; });
  std::vector<SpoolRecord> records;
  size_t bytes = 0;
  for (const Found& f : found) {
    if (!records.empty() && bytes + f.entry->size > most_bytes) break;
    const absl::StatusOr<std::string> frame = f.part->file.Read(f.entry->offset, f.entry->size);
    if (!frame.ok()) return frame.status();
    FrameHead head;
    absl::string_view record;
    if (DecodeFrame(*frame, &head, &record) != f.entry->size || head.position != f.entry->position) {
      state_.damaged_bytes += f.entry->size;  // somebody wrote into the file
      Done(*f.part, *f.entry);
      continue;
    }
    bytes += f.entry->size;
    records.push_back({head, std::string(record)});
  }
  return records;
}

}  // namespace cw::uplink
