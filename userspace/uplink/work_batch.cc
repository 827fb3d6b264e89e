// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/work_batch.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "userspace/uplink/batch_builder.h"

namespace cw::uplink {
namespace {

uint32_t Narrow(uint64_t value) { return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX)); }

// A queue pair that has the number of one before it begins at zero.
uint64_t Since(uint64_t before, uint64_t now) { return now >= before ? now - before : now; }

std::string JobKey(const wire::Job& job) { return absl::StrCat(job.id(), "/", job.pid(), "/", job.rank()); }

// Sends and receives have no sequence: one that is over is known by how long it took.
std::string CollectiveKey(const wire::Collective& c) {
  const bool over = c.state() == wire::Collective::STATE_DONE;
  return absl::StrCat(c.job_id(), "/", c.pid(), "/", c.rank(), "/", c.function(), "/", c.seq(), "/", c.peer(), "/",
                      c.state(), "/", over ? c.duration_ns() : 0);
}

// Of one whose communicator's begin was not seen nobody could say whose it is.
bool IsNews(const wire::Collective& c) {
  if (c.job_id().empty()) return false;
  return c.state() == wire::Collective::STATE_STALLED || (c.state() == wire::Collective::STATE_DONE && c.slow());
}

// None: even without its peers it is too large.
std::optional<wire::Collective> Fitting(const wire::Collective& whole, size_t most) {
  if (whole.ByteSizeLong() <= most) return whole;
  wire::Collective cut = whole;
  while (cut.peers_size() > 0 && cut.ByteSizeLong() > most) cut.mutable_peers()->RemoveLast();
  cut.set_cut(true);
  return cut.ByteSizeLong() <= most ? std::optional(cut) : std::nullopt;
}

}  // namespace

// An idle flow leaves the programs' table, and only what its process posted is known, all of it: it begins there. The
// programs count from zero once they see it again.
void WorkBatch::Rebase(Flow& flow, const FlowSeen& seen) {
  const bool fresh = flow.seen == 0;
  if (!fresh && flow.posted != seen.posted) {
    flow.bytes = seen.posted ? seen.bytes : 0;
    flow.retransmits = flow.ce = flow.cnps = 0;
  }
  flow.posted = seen.posted;
}

std::vector<WorkBatch::Change> WorkBatch::Changes(absl::Span<const FlowSeen> flows) {
  const bool first = ++call_ == 1;
  for (const FlowSeen& seen : flows) flows_.try_emplace(seen.key);  // so that what is pointed to stays
  std::vector<Change> changes;
  for (const FlowSeen& seen : flows) {
    Flow& flow = flows_.at(seen.key);
    if (flow.seen == call_) continue;  // told twice
    Rebase(flow, seen);
    flow.seen = call_;
    Change change{.seen = &seen,
                  .flow = &flow,
                  .bytes = Since(flow.bytes, seen.bytes),
                  .retransmits = Since(flow.retransmits, seen.retransmits),
                  .ce = Since(flow.ce, seen.ce),
                  .cnps = Since(flow.cnps, seen.cnps)};
    // What is no longer active waits with its last bytes for nobody: the agent saw them a moment ago, or never.
    if (!first && seen.active && (change.bytes > 0 || change.retransmits > 0)) changes.push_back(change);
    flow.bytes = seen.bytes;
    flow.retransmits = seen.retransmits;
    flow.ce = seen.ce;
    flow.cnps = seen.cnps;
  }
  absl::erase_if(flows_, [this](auto& entry) {
    const bool gone = entry.second.seen != call_;
    if (gone || call_ - entry.second.named > kForgetName) Free(entry.second);
    return gone;
  });
  return changes;
}

uint32_t WorkBatch::NumberOf(Flow& flow) {
  if (flow.name.flow() == 0 && numbers_ < kMostNumbers) {
    flow.name.set_flow(++numbers_);
  } else if (flow.name.flow() == 0 && !freed_.empty()) {
    flow.name.set_flow(freed_.front());
    freed_.pop_front();
  }
  return flow.name.flow();
}

// Its number is another one's at some time, so that names stay few.
void WorkBatch::Free(Flow& flow) {
  if (flow.name.flow() != 0) freed_.push_back(flow.name.flow());
  flow.name.Clear();
  flow.told = false;
}

void WorkBatch::AddFlow(const Change& change, const PathNumber& number, wire::Batch& batch) {
  const FlowSeen& seen = *change.seen;
  wire::FlowName name;
  name.set_flow(NumberOf(*change.flow));
  name.set_local(BytesOf(seen.key.src));
  name.set_qpn(seen.qpn);
  name.set_peer_qpn(seen.key.dqpn);
  name.set_remote(BytesOf(seen.key.dst));
  name.set_peer(seen.peer);
  name.set_pid(seen.pid);
  name.set_process(seen.process);
  name.set_label(seen.label);
  if (!change.flow->told || name.SerializeAsString() != change.flow->name.SerializeAsString())
    *batch.mutable_definitions()->add_flows() = name;
  change.flow->name = std::move(name);
  change.flow->told = true;
  change.flow->named = call_;
  wire::FlowRecord& record = *batch.add_flows();
  record.set_flow(change.flow->name.flow());
  record.set_path(number(seen));
  record.set_bytes(change.bytes);
  record.set_retransmits(Narrow(change.retransmits));
  record.set_ce_marks(Narrow(change.ce));
  record.set_cnps(Narrow(change.cnps));
  record.set_delay(PackOf(seen.queue, BatchBuilder::kFloorNs).Pack());
}

void WorkBatch::AddJobs(const wire::ListJobsReply& jobs, wire::Batch& batch) {
  size_t added = 0;
  for (const wire::Job& whole : jobs.jobs()) {
    wire::Job job = whole;
    job.clear_running();
    job.clear_chunk_qps();
    Job& known = jobs_[JobKey(job)];
    known.seen = call_;
    std::string now = job.SerializeAsString();
    const bool due = !job.ended() && ++known.ago >= kTellAgain;
    if (now == known.told && !due) continue;
    if (added == kMostJobs) {
      ++left_out_;
      continue;
    }
    ++added;
    known.told = std::move(now);
    known.ago = 0;
    *batch.add_jobs() = std::move(job);
  }
  std::erase_if(jobs_, [this](const auto& entry) { return entry.second.seen != call_; });
}

void WorkBatch::Detail(absl::Span<const FlowSeen> flows, const wire::ListJobsReply& jobs, const PathNumber& number,
                       wire::Batch& batch) {
  collective_bytes_ = 0;
  std::vector<Change> changes = Changes(flows);
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.bytes > b.bytes; });
  wire::OtherFlows others;
  for (size_t i = 0; i < changes.size(); ++i) {
    if (i < kMostFlows && NumberOf(*changes[i].flow) != 0) {
      AddFlow(changes[i], number, batch);
      continue;
    }
    others.set_flows(others.flows() + 1);
    others.set_bytes(others.bytes() + changes[i].bytes);
    others.set_retransmits(Narrow(others.retransmits() + changes[i].retransmits));
  }
  if (others.flows() > 0) *batch.mutable_other_flows() = others;
  AddJobs(jobs, batch);
}

void WorkBatch::Collectives(const wire::ListCollectivesReply& reply, bool again, wire::Batch& batch) {
  std::set<std::string> there;
  for (const wire::Collective& c : reply.collectives()) {
    if (!IsNews(c)) continue;
    std::string key = CollectiveKey(c);
    const bool known = told_.contains(key), stands = c.state() == wire::Collective::STATE_STALLED;
    if (known && !(again && stands)) {
      there.insert(std::move(key));
      continue;
    }
    const std::optional<wire::Collective> fitting = Fitting(c, kOneCollectiveBytes);
    if (!fitting || collective_bytes_ + fitting->ByteSizeLong() > kCollectiveBytes) {
      ++left_out_;
      there.insert(std::move(key));
      continue;
    }
    collective_bytes_ += fitting->ByteSizeLong();
    *batch.add_collectives() = *fitting;
    there.insert(std::move(key));
  }
  told_ = std::move(there);
}

void WorkBatch::DefineAgain() {
  for (auto& [key, flow] : flows_) flow.told = false;
  for (auto& [key, job] : jobs_) job.told.clear();
}

void WorkBatch::AddKnown(wire::Definitions& definitions) const {
  size_t added = 0;
  for (const auto& [key, flow] : flows_) {
    if (flow.name.flow() != 0 && added++ < kMostKnown) *definitions.add_flows() = flow.name;
  }
}

}  // namespace cw::uplink
