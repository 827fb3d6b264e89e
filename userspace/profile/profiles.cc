// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/profiles.h"

#include <algorithm>

namespace cw::profile {
namespace {

constexpr size_t kMaxProcesses = 256;
constexpr size_t kMaxOfUser = 128;  // root is trusted
constexpr size_t kMaxStalls = 32;
constexpr size_t kPortion = 512;               // records of one process before the next one's turn
constexpr int64_t kLookEveryNs = 500'000'000;  // for stalls: it goes through all pools
constexpr int64_t kKeepClosedNs = 300'000'000'000;

Op ToOp(const Memory::OpenOp& from) {
  const cw_prof_op& o = from.op;
  Op op{.handle = from.handle,
        .peer = o.peer,
        .channel = o.channel,
        .send = o.is_send != 0,
        .steps = o.steps,
        .steps_done = o.steps_done,
        .bytes = o.bytes,
        .start_ns = static_cast<int64_t>(o.start_ns),
        .first_ns = static_cast<int64_t>(o.first_ns),
        .progress_ns = static_cast<int64_t>(o.progress_ns)};
  for (size_t i = 1; i < CW_WAIT_STATES; ++i) op.wait_ns[i] = static_cast<double>(o.wait_ns[i]);
  for (size_t i = 0; i < o.qps; ++i) {
    const cw_prof_qp& qp = o.qp[i];
    op.qps.push_back({.qpn = qp.qpn & 0xffffff,
                      .requests = qp.requests,
                      .bytes = qp.bytes,
                      .wire_ns = static_cast<double>(qp.wire_ns),
                      .wire_max_ns = static_cast<double>(qp.wire_max_ns)});
  }
  return op;
}

// What its unfinished steps wait for now counts as time in that state, too.
void AddStep(Op& op, const cw_prof_step& step, int64_t now_ns) {
  const auto since_ns = static_cast<int64_t>(step.since_ns);
  if (step.wait == CW_WAIT_NONE || since_ns <= 0 || since_ns > now_ns) return;
  op.wait_ns[step.wait] += static_cast<double>(now_ns - since_ns);
  if (op.state != CW_WAIT_NONE && op.state_since_ns <= since_ns) return;
  op.state = step.wait;
  op.state_since_ns = since_ns;
}

void AddNet(Op& op, const cw_prof_net& net, int64_t now_ns) {
  auto qp = std::find_if(op.qps.begin(), op.qps.end(), [&](const Qp& q) { return q.qpn == net.qpn; });
  if (qp == op.qps.end()) {
    if (op.qps.size() >= CW_PROF_OP_QPS) return;
    op.qps.push_back({.qpn = net.qpn & 0xffffff});
    qp = op.qps.end() - 1;
  }
  ++qp->open;
  qp->open_ns = std::max(qp->open_ns, static_cast<double>(now_ns) - static_cast<double>(net.start_ns));
}

}  // namespace

// Where there is none, one of a process that has gone is forgotten.
absl::Status Profiles::MakeRoom(uint32_t uid) {
  size_t of_user = 0;
  for (const auto& [connection, process] : processes_) of_user += process->uid == uid && process->closed_ns == 0;
  for (const auto& [connection, offered] : offered_) of_user += offered.uid == uid;
  if (uid != 0 && of_user >= kMaxOfUser)
    return absl::ResourceExhaustedError("too many processes of this user have a profiler");
  if (processes_.size() + offered_.size() < kMaxProcesses) return absl::OkStatus();
  const auto old = std::find_if(processes_.begin(), processes_.end(),
                                [](const auto& entry) { return entry.second->closed_ns != 0; });
  if (old == processes_.end()) return absl::ResourceExhaustedError("too many processes with a profiler on this host");
  processes_.erase(old);
  return absl::OkStatus();
}

absl::StatusOr<int> Profiles::Offer(uint64_t connection, uint32_t pid, uint32_t uid) {
  if (offered_.count(connection) != 0 || processes_.count(connection) != 0)
    return absl::AlreadyExistsError("its profiler has a memory already");
  if (absl::Status status = MakeRoom(uid); !status.ok()) return status;
  absl::StatusOr<Memory::Made> made = Memory::Make();
  if (!made.ok()) return made.status();
  offered_[connection] = {.pid = pid, .uid = uid, .memory = std::move(made->memory)};
  return made->fd;
}

absl::Status Profiles::Begin(uint64_t connection) {
  const auto found = offered_.find(connection);
  if (found == offered_.end()) return absl::NotFoundError("its profiler was given no memory");
  if (absl::Status status = found->second.memory->Check(); !status.ok()) return status;
  Add(connection, found->second.pid, found->second.uid, std::move(found->second.memory));
  offered_.erase(found);
  return absl::OkStatus();
}

void Profiles::Add(uint64_t connection, uint32_t pid, uint32_t uid, std::unique_ptr<Memory> memory) {
  auto process = std::make_unique<Process>();
  process->connection = connection;
  process->pid = pid;
  process->uid = uid;
  process->own_pid = memory->Pid();
  process->label = memory->Label();
  process->name = memory->Process();
  process->memory = std::move(memory);
  processes_[connection] = std::move(process);
}

void Profiles::Closed(uint64_t connection, int64_t now_ns) {
  offered_.erase(connection);
  const auto found = processes_.find(connection);
  if (found != processes_.end()) found->second->closed_ns = now_ns;
}

Profiles::Process* Profiles::FindPid(uint32_t pid, uint32_t uid) {
  for (auto& [connection, process] : processes_) {
    if (process->own_pid == pid && process->uid == uid && process->closed_ns == 0) return process.get();
  }
  return nullptr;
}

// Under PXN a process drives operations of another one's collectives: of the same user, or not at all.
void Profiles::Route(Process& from, const cw_prof_record& record) {
  if (record.type == CW_PROF_QP) from.seen_qps = true;
  const bool of_op = record.type == CW_PROF_OP_STOP || record.type == CW_PROF_QP || record.type == CW_PROF_CHUNKS;
  const auto pid = static_cast<uint32_t>(record.pid);
  if (of_op && pid != from.own_pid) {
    if (Process* owner = FindPid(pid, from.uid); owner != nullptr) return owner->book.Add(record, from.pid);
  }
  from.book.Add(record, from.pid);
}

OpenNow Profiles::Open(const Process& process, int64_t now_ns) const {
  OpenNow now;
  if (process.memory == nullptr || process.closed_ns != 0) return now;
  std::map<uint64_t, size_t> index;
  for (const Memory::OpenOp& open : process.memory->OpenOps()) {
    index[open.handle] = now.ops.size();
    now.ops.push_back(ToOp(open));
    now.coll.push_back(open.op.coll);
    now.pid.push_back(open.op.pid);
  }
  for (const cw_prof_step& step : process.memory->OpenSteps()) {
    if (const auto op = index.find(step.op); op != index.end()) AddStep(now.ops[op->second], step, now_ns);
  }
  for (const cw_prof_net& net : process.memory->OpenNets()) {
    if (const auto op = index.find(net.op); op != index.end()) AddNet(now.ops[op->second], net, now_ns);
  }
  return now;
}

void Profiles::FindStalls(Process& process, int64_t now_ns, const std::function<void(const Stall&)>& stalled) {
  const OpenNow open = Open(process, now_ns);
  for (auto& [handle, coll] : process.book.open()) {
    if (coll.stall_told) continue;
    int64_t progress_ns = coll.last_ns;
    bool runs = false;
    for (size_t i = 0; i < open.ops.size(); ++i) {
      if (open.coll[i] != handle) continue;
      runs = true;
      progress_ns = std::max(progress_ns, open.ops[i].progress_ns);
    }
    if (!runs || now_ns - progress_ns < options_.stall_ns) continue;
    coll.stall_told = true;
    Stall stall;
    stall.collective = View(process, Book::Running(coll, open), now_ns);
    stall.stands_s = static_cast<double>(now_ns - progress_ns) / 1e9;
    stalls_.emplace_back(stall.collective, now_ns);
    if (stalls_.size() > kMaxStalls) stalls_.pop_front();
    stalled(stall);
  }
}

std::vector<ChunkOp> Profiles::TakeChunks() {
  std::vector<ChunkOp> out;
  for (auto& [connection, process] : processes_) {
    for (ChunkOp& op : process->book.TakeChunks()) {
      op.connection = connection;
      out.push_back(std::move(op));
    }
  }
  return out;
}

void Profiles::AddDelays(const ChunkMatcher::Match& match) {
  const auto process = processes_.find(match.connection);
  if (process != processes_.end()) process->second->book.AddDelays(match);
}

size_t Profiles::ReadSome(Process& process, int64_t now_ns, size_t limit) {
  const std::vector<cw_prof_record> records = process.memory->Read(now_ns, limit);
  for (const cw_prof_record& record : records) Route(process, record);
  if (process.memory->lost() != process.lost_told) {
    process.lost_told = process.memory->lost();
    process.book.Lost();
  }
  return records.size();
}

// In turns, from where the last call ended, until nobody has more or the budget is used up.
size_t Profiles::ReadAll(int64_t now_ns) {
  std::deque<Process*> line;
  for (auto entry = processes_.lower_bound(first_); entry != processes_.end(); ++entry)
    line.push_back(entry->second.get());
  for (auto entry = processes_.begin(); entry != processes_.lower_bound(first_); ++entry)
    line.push_back(entry->second.get());
  size_t total = 0;
  while (!line.empty() && total < options_.records_per_poll) {
    Process* next = line.front();
    line.pop_front();
    const size_t portion = std::min(kPortion, options_.records_per_poll - total);
    const size_t got = ReadSome(*next, now_ns, portion);
    total += got;
    if (got == portion) line.push_back(next);
  }
  if (!line.empty()) first_ = line.front()->connection;
  return total;
}

size_t Profiles::Poll(int64_t now_ns, const std::function<void(const Stall&)>& stalled) {
  std::erase_if(processes_, [&](const auto& entry) {
    return entry.second->closed_ns != 0 && now_ns - entry.second->closed_ns > kKeepClosedNs;
  });
  const size_t records = ReadAll(now_ns);
  std::vector<Process*> doubted;
  for (auto& [connection, entry] : processes_) {
    Process& process = *entry;
    process.book.Tick(now_ns, options_.slow_factor, [&](uint64_t handle) {
      const std::optional<cw_prof_coll> coll = process.memory->Coll(handle);
      return coll && process.closed_ns == 0 ? static_cast<int>(std::min<uint32_t>(coll->open, 1u << 20)) : -1;
    });
    const bool waits = std::any_of(process.book.open().begin(), process.book.open().end(), [&](const auto& c) {
      return !c.second.stall_told && now_ns - c.second.start_ns > options_.stall_ns;
    });
    if (options_.stall_ns > 0 && waits && process.closed_ns == 0 && now_ns - process.looked_ns >= kLookEveryNs)
      doubted.push_back(&process);
  }
  // Those first that were not looked at for longest.
  std::sort(doubted.begin(), doubted.end(), [](const Process* a, const Process* b) {
    return std::pair(a->looked_ns, a->connection) < std::pair(b->looked_ns, b->connection);
  });
  if (doubted.size() > options_.looks_per_poll) doubted.resize(options_.looks_per_poll);
  for (Process* process : doubted) {
    process->looked_ns = now_ns;
    FindStalls(*process, now_ns, stalled);
  }
  return records;
}

}  // namespace cw::profile
