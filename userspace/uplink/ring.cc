// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/ring.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/uplink/spool_format.h"

namespace cw::uplink {
namespace {

constexpr uint64_t kLeastBlock = 256 << 10, kMostBlock = 1 << 20, kBlocksWanted = 64;
constexpr uint64_t kLastSequence = uint64_t{1} << 62;  // a forged one must not end all counting

uint64_t BlockBytes(uint64_t bytes) { return std::clamp(bytes / kBlocksWanted, kLeastBlock, kMostBlock); }

absl::Status RingError(int error, absl::string_view what, const std::string& path) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for the ring file ", path, ": free some on its file system, or lower fleet.ring_mib"));
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " the ring file ", path));
}

// File systems without preallocation get a file with holes: the size is kept, the promise is not.
int Allocate(int fd, uint64_t bytes) {
  if (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
  if (errno != EOPNOTSUPP) return errno;
  return ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

}  // namespace

Ring::Ring(std::string path, int fd, uint64_t block_bytes, size_t blocks)
    : path_(std::move(path)), fd_(fd), block_bytes_(block_bytes), blocks_(blocks) {}

Ring::~Ring() { close(fd_); }

absl::StatusOr<std::unique_ptr<Ring>> Ring::Open(const std::string& path, uint64_t bytes) {
  bytes = std::max(bytes, kLeastBytes);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return RingError(errno, "open", path);
  const uint64_t block = BlockBytes(bytes), size = bytes / block * block;
  std::unique_ptr<Ring> ring(new Ring(path, fd, block, size / block));
  struct stat info {};
  if (fstat(fd, &info) != 0) return RingError(errno, "read", path);
  if (!S_ISREG(info.st_mode)) return absl::FailedPreconditionError(path + " is no ordinary file: take it away");
  if (flock(fd, LOCK_EX | LOCK_NB) != 0)
    return absl::FailedPreconditionError(path + " is another agent's ring: give each a state_dir of its own");
  const bool fresh = static_cast<uint64_t>(info.st_size) != size;
  if (fresh && ftruncate(fd, 0) != 0) return RingError(errno, "empty", path);
  if (const int failed = Allocate(fd, size); failed != 0) {
    if (fresh) unlink(path.c_str());
    return RingError(failed, "make", path);
  }
  if (absl::Status status = ring->Load(fresh); !status.ok()) return status;
  return ring;
}

absl::StatusOr<std::string> Ring::BlockAt(size_t place) const {
  std::string bytes(block_bytes_, 0);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        pread(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(place * block_bytes_ + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return RingError(errno, "read", path_);
    if (got == 0) break;  // somebody cut it: what is missing is no record
    done += static_cast<size_t>(got);
  }
  return bytes;
}

// Of each block the newest lap; the newest block is gone on with behind its last whole record.
absl::Status Ring::Load(bool fresh) {
  for (size_t place = 0; !fresh && place < blocks_.size(); ++place) {
    const absl::StatusOr<std::string> bytes = BlockAt(place);
    if (!bytes.ok()) return bytes.status();
    Block& block = blocks_[place];
    uint64_t end = 0;
    ScanSegment(*bytes, [&](size_t offset, const FrameHead& head, absl::string_view record) {
      const bool mine = head.sequence != 0 && head.sequence < kLastSequence && PlaceOf(head.sequence) == place;
      if (!mine || head.sequence < block.sequence) return;
      if (head.sequence > block.sequence) block = {head.sequence, head.time_ns, head.time_ns};
      block.last_ns = std::max(block.last_ns, head.time_ns);
      end = offset + kFrameOverhead + record.size();
    });
    if (block.sequence <= sequence_) continue;
    sequence_ = block.sequence;
    used_ = end;
  }
  // What lies before by more than a lap is an older file's, or forged.
  for (Block& block : blocks_) {
    if (block.sequence + blocks_.size() <= sequence_) block = {};
  }
  return absl::OkStatus();
}

uint64_t Ring::most_record_bytes() const { return block_bytes_ - kSegmentHead.size() - kFrameOverhead; }

bool Ring::Fits(size_t bytes) const { return sequence_ != 0 && used_ + kFrameOverhead + bytes <= block_bytes_; }

absl::Status Ring::Append(uint64_t run, int64_t end_ns, absl::string_view record) {
  if (record.size() > most_record_bytes())
    return absl::InvalidArgumentError(
        absl::StrCat("a record of ", record.size(), " bytes; at most ", most_record_bytes()));
  const bool begins = !Fits(record.size());
  const uint64_t sequence = begins ? sequence_ + 1 : sequence_, at = begins ? 0 : used_;
  Block& block = blocks_[PlaceOf(sequence)];
  std::string bytes(begins ? kSegmentHead : "");
  bytes += EncodeFrame({Kind::kDetail, sequence, run, sequence, end_ns}, record);
  if (begins) block = {};  // half of it may be overwritten when the disk fails
  absl::string_view left = bytes;
  uint64_t to = PlaceOf(sequence) * block_bytes_ + at;
  while (!left.empty()) {
    const ssize_t wrote = pwrite(fd_, left.data(), left.size(), static_cast<off_t>(to));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return RingError(wrote < 0 ? errno : ENOSPC, "write", path_);
    left.remove_prefix(static_cast<size_t>(wrote));
    to += static_cast<uint64_t>(wrote);
  }
  if (begins) block = {sequence, end_ns, end_ns};
  block.last_ns = std::max(block.last_ns, end_ns);
  sequence_ = sequence;
  used_ = at + bytes.size();
  return absl::OkStatus();
}

RingSpot Ring::Find(int64_t from_ns) const {
  RingSpot spot{.sequence = std::max<uint64_t>(1, sequence_)};
  for (const Block& block : blocks_) {
    if (block.sequence != 0 && block.last_ns > from_ns) spot.sequence = std::min(spot.sequence, block.sequence);
  }
  return spot;
}

int64_t Ring::oldest_ns() const {
  int64_t oldest = 0;
  for (const Block& block : blocks_) {
    if (block.sequence != 0 && (oldest == 0 || block.first_ns < oldest)) oldest = block.first_ns;
  }
  return oldest;
}

absl::StatusOr<std::vector<RingRecord>> Ring::Read(RingSpot& spot, bool* lost) {
  std::vector<RingRecord> records;
  if (spot.sequence + blocks_.size() <= sequence_) {
    *lost = true;
    spot = {.sequence = sequence_ - blocks_.size() + 1};
  }
  if (spot.sequence > sequence_ || (spot.sequence == sequence_ && spot.offset >= used_)) return records;
  const bool present = spot.sequence == sequence_;
  const absl::StatusOr<std::string> all = BlockAt(PlaceOf(spot.sequence));
  if (!all.ok()) return all.status();
  const absl::string_view bytes = absl::string_view(*all).substr(0, present ? used_ : block_bytes_);
  uint64_t end = std::max<uint64_t>(spot.offset, kSegmentHead.size());
  ScanSegment(bytes, [&](size_t offset, const FrameHead& head, absl::string_view record) {
    // Behind the last record of this lap stands the lap before.
    if (head.sequence != spot.sequence || offset < end) return;
    damaged_bytes_ += offset - end;
    end = offset + kFrameOverhead + record.size();
    records.push_back({head.time_ns, std::string(record)});
  });
  if (present) {
    damaged_bytes_ += used_ - end;
    spot.offset = used_;
  } else {
    if (end <= kSegmentHead.size()) damaged_bytes_ += bytes.size();  // nothing of it can be read
    spot = {.sequence = spot.sequence + 1};
  }
  return records;
}

}  // namespace cw::uplink
