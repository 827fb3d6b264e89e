// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace cw::profile {
namespace {

constexpr int64_t kGiveUpNs = 1'000'000'000;

// Word by word, so that a writer at work gives old or new words and the compiler reads each once.
template <typename T>
void Copy(const T& from, T& to) {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0 && alignof(T) == alignof(uint64_t));
  const auto* source = reinterpret_cast<const uint64_t*>(&from);
  uint64_t words[sizeof(T) / sizeof(uint64_t)];
  for (size_t i = 0; i < sizeof(T) / sizeof(uint64_t); ++i) words[i] = __atomic_load_n(source + i, __ATOMIC_RELAXED);
  std::memcpy(&to, words, sizeof(T));
}

template <typename T>
uint32_t Generation(const T& slot) {
  return __atomic_load_n(&slot.generation, __ATOMIC_ACQUIRE);
}

// A copy of a live slot, none if it changed hands meanwhile.
template <typename T>
bool CopyLive(const T& slot, T& out) {
  const uint32_t before = Generation(slot);
  if ((before & 1) == 0) return false;
  Copy(slot, out);
  std::atomic_thread_fence(std::memory_order_acquire);
  return Generation(slot) == before;
}

}  // namespace

std::string Text(const char* text, size_t size) {
  std::string out(text, strnlen(text, size));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return !absl::ascii_isprint(static_cast<unsigned char>(c)); }, '?');
  return out;
}

absl::StatusOr<Memory::Made> Memory::Make() {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int fd = memfd_create("cwfabric-nccl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return absl::ErrnoToStatus(errno, "make memory for a profiler");
  void* mapped = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(CW_PROF_SIZE)) == 0 && fcntl(fd, F_ADD_SEALS, kSeals) == 0)
    mapped = mmap(nullptr, CW_PROF_SIZE, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    const absl::Status status = absl::ErrnoToStatus(errno, "make memory for a profiler");
    close(fd);
    return status;
  }
  Made made{.memory = std::make_unique<Memory>(static_cast<const cw_prof_shared*>(mapped)), .fd = fd};
  made.memory->mapped_ = true;
  return made;
}

absl::Status Memory::Check() const {
  const uint64_t magic = __atomic_load_n(&shared_->magic, __ATOMIC_ACQUIRE);
  if (magic == CW_PROF_MAGIC && __atomic_load_n(&shared_->version, __ATOMIC_RELAXED) == CW_PROF_VERSION)
    return absl::OkStatus();
  return absl::InvalidArgumentError("the memory of a profiler has another layout; use a plug-in of this release");
}

Memory::~Memory() {
  if (mapped_) munmap(const_cast<cw_prof_shared*>(shared_), CW_PROF_SIZE);
}

Memory::Got Memory::ReadOne(uint64_t index, cw_prof_record& out) const {
  const cw_prof_record& slot = shared_->ring[index % CW_PROF_RING];
  const uint64_t complete = 2 * index + 2;
  const uint64_t before = __atomic_load_n(&slot.seq, __ATOMIC_ACQUIRE);
  if (before > complete) return Got::kGone;
  if (before < complete) return Got::kNotYet;
  Copy(slot, out);
  std::atomic_thread_fence(std::memory_order_acquire);
  return __atomic_load_n(&slot.seq, __ATOMIC_RELAXED) == before ? Got::kRecord : Got::kGone;
}

std::vector<cw_prof_record> Memory::Read(int64_t now_ns, size_t limit) {
  std::vector<cw_prof_record> out;
  const uint64_t head = __atomic_load_n(&shared_->head, __ATOMIC_ACQUIRE);
  if (head < next_) next_ = head;  // it was set back: only a hostile writer does
  if (head - next_ > CW_PROF_RING) {
    lost_ += head - CW_PROF_RING - next_;
    next_ = head - CW_PROF_RING;
  }
  for (; next_ < head && out.size() < limit; ++next_) {
    cw_prof_record record;
    const Got got = ReadOne(next_, record);
    if (got == Got::kNotYet) {
      if (waiting_since_ns_ == 0) waiting_since_ns_ = now_ns;
      if (now_ns - waiting_since_ns_ < kGiveUpNs && head - next_ < CW_PROF_RING / 2) break;
    }
    waiting_since_ns_ = 0;
    if (got == Got::kRecord) {
      out.push_back(record);
    } else {
      ++lost_;
    }
  }
  return out;
}

std::optional<cw_prof_coll> Memory::Coll(uint64_t handle) const {
  const uint32_t index = cw_prof_handle_index(handle);
  if (cw_prof_handle_kind(handle) != CW_PROF_COLL || index >= CW_PROF_COLLS) return std::nullopt;
  cw_prof_coll coll;
  if (!CopyLive(shared_->coll[index], coll)) return std::nullopt;
  if ((coll.generation & 0xfffffff) != cw_prof_handle_generation(handle)) return std::nullopt;
  return coll;
}

std::vector<Memory::OpenOp> Memory::OpenOps() const {
  std::vector<OpenOp> out;
  for (uint32_t i = 0; i < CW_PROF_OPS; ++i) {
    OpenOp open;
    if (!CopyLive(shared_->op[i], open.op)) continue;
    open.handle = cw_prof_handle(CW_PROF_OP, open.op.generation, i);
    open.op.qps = std::min<uint8_t>(open.op.qps, CW_PROF_OP_QPS);
    out.push_back(open);
  }
  return out;
}

std::vector<cw_prof_step> Memory::OpenSteps() const {
  std::vector<cw_prof_step> out;
  for (const cw_prof_step& slot : shared_->step) {
    cw_prof_step step;
    if (CopyLive(slot, step) && step.wait < CW_WAIT_STATES) out.push_back(step);
  }
  return out;
}

std::vector<cw_prof_net> Memory::OpenNets() const {
  std::vector<cw_prof_net> out;
  for (const cw_prof_net& slot : shared_->net) {
    cw_prof_net net;
    if (CopyLive(slot, net)) out.push_back(net);
  }
  return out;
}

cw_prof_counts Memory::Counts() const {
  cw_prof_counts counts;
  Copy(shared_->counts, counts);
  return counts;
}

uint64_t Memory::Dropped() const {
  const cw_prof_counts c = Counts();
  return c.no_comm + c.no_coll + c.no_op + c.no_step + c.no_net;
}

uint32_t Memory::Pid() const { return __atomic_load_n(&shared_->pid, __ATOMIC_RELAXED); }

std::string Memory::Label() const {
  char label[sizeof(shared_->label)];
  std::memcpy(label, shared_->label, sizeof(label));
  return Text(label, sizeof(label));
}

std::string Memory::Process() const {
  char process[sizeof(shared_->process)];
  std::memcpy(process, shared_->process, sizeof(process));
  return Text(process, sizeof(process));
}

}  // namespace cw::profile
