// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/book.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "userspace/profile/memory.h"

namespace cw::profile {
namespace {

constexpr size_t kMaxAlike = 32, kMaxKinds = 4096, kMaxWaitingQps = 4096;
constexpr size_t kEnoughAlike = 5;  // to know what is usual

uint64_t BytesOf(const std::string& datatype) {
  const auto digit = std::find_if(datatype.begin(), datatype.end(), [](unsigned char c) { return std::isdigit(c); });
  if (digit == datatype.end()) return 0;
  const std::string bits(digit, std::find_if(digit, datatype.end(), [](unsigned char c) { return !std::isdigit(c); }));
  for (const auto& [text, bytes] : {std::pair("8", 1), {"16", 2}, {"32", 4}, {"64", 8}}) {
    if (bits == text) return static_cast<uint64_t>(bytes);
  }
  return 0;
}

Qp ToQp(const cw_prof_qp& from) {
  return {.qpn = from.qpn & 0xffffff,
          .requests = from.requests,
          .bytes = from.bytes,
          .wire_ns = static_cast<double>(from.wire_ns),
          .wire_max_ns = static_cast<double>(from.wire_max_ns)};
}

void Earlier(int64_t& time, int64_t other) {
  if (other > 0 && (time == 0 || other < time)) time = other;
}

double Median(std::deque<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

uint64_t SizeBytes(const std::string& function, const std::string& datatype, uint64_t count, int ranks) {
  const uint64_t each = BytesOf(datatype);
  const bool parts = function == "AllGather" || function == "ReduceScatter" || function == "AlltoAll" ||
                     function == "AllToAll" || function == "Gather" || function == "Scatter";
  const uint64_t times = each * static_cast<uint64_t>(parts ? std::max(ranks, 1) : 1);
  uint64_t bytes = 0;
  return __builtin_mul_overflow(count, times, &bytes) ? 0 : bytes;
}

double BusFactor(const std::string& function, int ranks) {
  if (ranks < 2) return 1;
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (function == "AllReduce") return 2 * others;
  for (const char* part : {"AllGather", "ReduceScatter", "AlltoAll", "AllToAll", "Gather", "Scatter"}) {
    if (function == part) return others;
  }
  return 1;
}

Collective* Book::Find(uint64_t handle) {
  const auto open = open_.find(handle);
  if (open != open_.end()) return &open->second;
  // Late children: the newest are looked at only, because handles of the others are out of use.
  for (auto coll = done_.rbegin(); coll != done_.rend() && coll - done_.rbegin() < 64; ++coll) {
    if (coll->handle == handle) return &*coll;
  }
  return nullptr;
}

void Book::StartComm(const cw_prof_record& record) {
  const auto& from = record.u.comm;
  if (comms_.size() >= kMaxComms) {
    const auto ended = std::find_if(comms_.begin(), comms_.end(), [](const auto& c) { return c.second.ended; });
    if (ended == comms_.end()) return;
    comms_.erase(ended);
  }
  comms_[record.coll] = {.handle = record.coll,
                         .id = from.id,
                         .ranks = std::clamp(from.ranks, 0, 1 << 24),
                         .rank = from.rank,
                         .nodes = from.nodes,
                         .profiler = from.profiler,
                         .name = Text(from.name, sizeof(from.name)),
                         .start_ns = static_cast<int64_t>(record.time_ns)};
}

void Book::StartColl(const cw_prof_record& record) {
  const auto& from = record.u.coll;
  if (open_.size() >= kMaxOpen) Drop(open_.begin());
  if (const auto before = open_.find(record.coll); before != open_.end()) Drop(before);
  Collective coll;
  coll.handle = record.coll;
  coll.comm = from.comm;
  coll.seq = from.seq;
  coll.p2p = record.is_p2p != 0;
  coll.root = from.root;
  coll.channels = from.channels;
  coll.function = Text(from.function, sizeof(from.function));
  coll.datatype = Text(from.datatype, sizeof(from.datatype));
  coll.algorithm = Text(from.algorithm, sizeof(from.algorithm));
  coll.protocol = Text(from.protocol, sizeof(from.protocol));
  const auto comm = comms_.find(from.comm);
  coll.bytes = SizeBytes(coll.function, coll.datatype, from.count, comm == comms_.end() ? 0 : comm->second.ranks);
  coll.start_ns = static_cast<int64_t>(record.time_ns);
  open_[record.coll] = std::move(coll);
}

void Book::Drop(std::map<uint64_t, Collective>::iterator coll) {
  ops_ -= coll->second.ops.size();
  open_.erase(coll);
}

void Book::DropOldest() {
  ops_ -= done_.front().ops.size();
  done_.pop_front();
}

void Book::StopOp(const cw_prof_record& record) {
  const auto& from = record.u.op;
  std::vector<Qp> qps;
  if (const auto known = qps_.find(from.op); known != qps_.end()) {
    qps = std::move(known->second);
    qps_.erase(known);
  }
  while (ops_ >= kMaxAllOps && !done_.empty()) DropOldest();
  Collective* coll = Find(record.coll);
  if (coll != nullptr) EndChunks(record, *coll);
  chunks_.erase(from.op);
  if (coll == nullptr) return;
  coll->last_ns = std::max(coll->last_ns, static_cast<int64_t>(record.time_ns));
  Earlier(coll->first_ns, static_cast<int64_t>(from.first_ns));
  if (coll->ops.size() >= kMaxOps || ops_ >= kMaxAllOps) {
    coll->cut = true;
    return;
  }
  Op op{.handle = from.op,
        .peer = from.peer,
        .channel = record.channel,
        .send = record.is_send != 0,
        .done = true,
        .steps = from.steps,
        .steps_done = from.steps,
        .bytes = from.bytes,
        .start_ns = static_cast<int64_t>(from.start_ns),
        .first_ns = static_cast<int64_t>(from.first_ns),
        .progress_ns = static_cast<int64_t>(record.time_ns),
        .qps = std::move(qps)};
  for (int i = 1; i < CW_WAIT_STATES; ++i)
    op.wait_ns[static_cast<size_t>(i)] = static_cast<double>(from.wait_ns[i - 1]);
  if (coll->first_ns == 0) coll->first_ns = op.start_ns;
  coll->ops.push_back(std::move(op));
  ++ops_;
}

// Every number is a claim.
void Book::AddChunks(const cw_prof_record& record, uint32_t driver) {
  const auto& from = record.u.chunks;
  if (chunks_.size() >= kMaxWaitingQps) chunks_.clear();
  std::vector<ChunkOp>& waiting = chunks_[from.op];
  if (from.unsure != 0 || from.posted > kMostChunks || waiting.size() >= CW_PROF_OP_QPS) return;
  ChunkOp op{.coll = record.coll,
             .handle = from.op,
             .pid = driver,
             .qpn = from.qpn & 0xffffff,
             .send = record.is_send != 0,
             .posted = from.posted};
  for (size_t i = 0; i < std::min<size_t>(from.count, CW_PROF_STAMPS); ++i) {
    if (from.stamp[i].number >= from.posted || from.base_ns > INT64_MAX / 2) continue;
    op.stamps.emplace_back(from.stamp[i].number, static_cast<int64_t>(from.base_ns + from.stamp[i].after_ns));
  }
  if (!op.stamps.empty()) waiting.push_back(std::move(op));
}

// Sends and receives have no number by which the other end could tell them apart.
void Book::EndChunks(const cw_prof_record& record, const Collective& coll) {
  const auto waiting = chunks_.find(record.u.op.op);
  const auto comm = comms_.find(coll.comm);
  if (waiting == chunks_.end() || coll.p2p || comm == comms_.end()) return;
  for (ChunkOp& op : waiting->second) {
    if (chunk_ops_.size() >= kMaxChunkOps) return;
    op.operation = OperationName(comm->second.id, coll.function, coll.seq, record.channel);
    op.bytes = record.u.op.bytes;
    chunk_ops_.push_back(std::move(op));
  }
}

std::vector<ChunkOp> Book::TakeChunks() { return std::exchange(chunk_ops_, {}); }

void Book::AddDelays(const ChunkMatcher::Match& match) {
  const auto put = [&](Collective& coll) {
    for (Op& op : coll.ops) {
      if (op.handle != match.handle) continue;
      for (Qp& qp : op.qps) {
        if (qp.qpn != match.qpn) continue;
        qp.chunk_ns = match.delay_ns;
        qp.chunk_bound_ns = match.bound_ns;
      }
    }
  };
  if (const auto open = open_.find(match.coll); open != open_.end()) return put(open->second);
  for (auto coll = done_.rbegin(); coll != done_.rend(); ++coll) {
    if (coll->handle == match.coll) return put(*coll);
  }
}

void Book::Add(const cw_prof_record& record, uint32_t driver) {
  switch (record.type) {
    case CW_PROF_COMM_START:
      return StartComm(record);
    case CW_PROF_COMM_END:
      if (const auto comm = comms_.find(record.coll); comm != comms_.end()) comm->second.ended = true;
      return;
    case CW_PROF_COLL_START:
      return StartColl(record);
    case CW_PROF_COLL_STOP:
      if (Collective* coll = Find(record.coll); coll != nullptr) coll->enqueued = true;
      return;
    case CW_PROF_QP:
      if (qps_.size() >= kMaxWaitingQps) qps_.clear();
      if (std::vector<Qp>& qps = qps_[record.u.qp.op]; qps.size() < CW_PROF_OP_QPS) qps.push_back(ToQp(record.u.qp.qp));
      return;
    case CW_PROF_CHUNKS:
      return AddChunks(record, driver);
    case CW_PROF_OP_STOP:
      return StopOp(record);
    case CW_PROF_KERNEL_STOP:
      if (Collective* coll = Find(record.coll); coll != nullptr && !coll->ops.empty())
        coll->last_ns = std::max(coll->last_ns, static_cast<int64_t>(record.time_ns));
      return;
    default:
      return;
  }
}

void Book::Lost() {
  for (auto& [handle, coll] : open_) coll.cut = true;
}

bool Book::IsOver(const Collective& coll, int64_t now_ns, int open) {
  if (coll.ops.empty()) return open <= 0 && now_ns - coll.start_ns > kLocalNs;
  if (open > 0) return false;
  return (coll.enqueued || open < 0 || coll.cut) && now_ns - coll.last_ns > kSettleNs;
}

void Book::Close(uint64_t handle, int64_t /*now_ns*/, double slow_factor) {
  const auto found = open_.find(handle);
  Collective coll = std::move(found->second);
  open_.erase(found);
  if (coll.ops.empty()) return;  // nothing of it was on the network
  coll.done = true;
  const double duration_ns = coll.DurationNs();
  if (duration_ns > 0) {
    if (alike_.size() >= kMaxKinds) alike_.clear();
    std::deque<double>& alike = alike_[{coll.comm, coll.function, coll.bytes}];
    coll.usual_ns = alike.size() >= kEnoughAlike ? Median(alike) : 0;
    coll.slow = coll.usual_ns > 0 && duration_ns > slow_factor * coll.usual_ns;
    alike.push_back(duration_ns);
    if (alike.size() > kMaxAlike) alike.pop_front();
    if (const auto comm = comms_.find(coll.comm); comm != comms_.end()) ++comm->second.done;
  }
  done_.push_back(std::move(coll));
  if (done_.size() > kMaxDone) DropOldest();
}

Collective Book::Running(const Collective& coll, const OpenNow& now) {
  Collective out = coll;
  for (size_t i = 0; i < now.ops.size(); ++i) {
    if (now.coll[i] != coll.handle || out.ops.size() >= kMaxOps) continue;
    const Op& op = now.ops[i];
    const bool ended = std::any_of(out.ops.begin(), out.ops.end(), [&](const Op& o) { return o.handle == op.handle; });
    if (ended) continue;  // between our two looks
    Earlier(out.first_ns, op.first_ns);
    out.ops.push_back(op);
  }
  return out;
}

}  // namespace cw::profile
