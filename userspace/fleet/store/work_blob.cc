// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/work_blob.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "userspace/fleet/store/blob_bytes.h"

namespace cw::fleet {
namespace {

absl::Status BadWork() {
  return absl::DataLossError("a damaged block of flows in the store: restore it, or delete that time's detail");
}

void PutText(absl::string_view text, std::string* out) {
  PutVarint(text.size(), out);
  out->append(text.data(), text.size());
}

bool TakeText(absl::string_view* bytes, std::string* text) {
  uint64_t size = 0;
  if (!TakeVarint(bytes, &size) || size > bytes->size()) return false;
  text->assign(bytes->data(), size);
  bytes->remove_prefix(size);
  return true;
}

void PutAddr(const Addr& addr, std::string* out) {
  out->append(reinterpret_cast<const char*>(addr.bytes.data()), addr.bytes.size());
}

bool TakeAddr(absl::string_view* bytes, Addr* addr) {
  if (bytes->size() < addr->bytes.size()) return false;
  std::memcpy(addr->bytes.data(), bytes->data(), addr->bytes.size());
  bytes->remove_prefix(addr->bytes.size());
  return true;
}

void PutName(const FlowName& name, std::string* out) {
  PutAddr(name.local, out);
  PutAddr(name.remote, out);
  for (const uint32_t number : {name.qpn, name.peer_qpn, name.pid}) PutVarint(number, out);
  for (const std::string* text : {&name.peer, &name.process, &name.label}) PutText(*text, out);
}

bool TakeName(absl::string_view* bytes, FlowName* name) {
  return TakeAddr(bytes, &name->local) && TakeAddr(bytes, &name->remote) && TakeNumber32(bytes, &name->qpn) &&
         TakeNumber32(bytes, &name->peer_qpn) && TakeNumber32(bytes, &name->pid) && TakeText(bytes, &name->peer) &&
         TakeText(bytes, &name->process) && TakeText(bytes, &name->label);
}

// A flow that goes on as it was costs a few bytes besides its sketch.
struct FlowBefore {
  uint64_t port = 0, hops = 0, bytes = 0;
};

void PutFlow(const FlowSample& s, FlowBefore& before, std::string* out) {
  PutVarint(Change(s.udp_port, before.port), out);
  PutVarint(s.hops == before.hops ? 0 : 1, out);
  if (s.hops != before.hops) PutVarint(s.hops, out);
  PutVarint(Change(s.bytes, before.bytes), out);
  for (const uint32_t number : {s.retransmits, s.ce, s.cnps}) PutVarint(number, out);
  PutText(s.delay.Pack(), out);
  before = {s.udp_port, s.hops, s.bytes};
}

bool TakeFlow(absl::string_view* bytes, FlowBefore& before, FlowSample* s) {
  uint64_t port = 0, new_hops = 0, sent = 0;
  std::string delay;
  if (!TakeVarint(bytes, &port) || !TakeVarint(bytes, &new_hops)) return false;
  if (new_hops != 0 && !TakeVarint(bytes, &before.hops)) return false;
  if (!TakeVarint(bytes, &sent) || !TakeNumber32(bytes, &s->retransmits) || !TakeNumber32(bytes, &s->ce) ||
      !TakeNumber32(bytes, &s->cnps) || !TakeText(bytes, &delay))
    return false;
  absl::StatusOr<PackedSketch> sketch = PackedSketch::Unpack(delay);
  before.port = Apply(port, before.port);
  before.bytes = Apply(sent, before.bytes);
  if (!sketch.ok() || before.port > UINT16_MAX) return false;
  s->udp_port = static_cast<uint16_t>(before.port);
  s->hops = before.hops;
  s->bytes = before.bytes;
  s->delay = *std::move(sketch);
  return true;
}

// One block after the other, each with what it has seen so far.
struct WorkReader {
  absl::string_view rest;
  std::vector<FlowName> names;
  std::vector<FlowBefore> before;
  uint64_t time_ns = 0;

  // What is told of how many there are is not believed beforehand.
  bool Names() {
    uint64_t count = 0;
    if (!TakeVarint(&rest, &count)) return false;
    for (uint64_t i = 0; i < count; ++i) {
      if (!TakeName(&rest, &names.emplace_back())) return false;
    }
    before.resize(names.size());
    return true;
  }

  bool Flows(WorkSample& out) {
    uint64_t count = 0;
    if (!TakeVarint(&rest, &count)) return false;
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t name = 0;
      if (!TakeVarint(&rest, &name) || name >= names.size()) return false;
      out.flows.push_back({.name = names[name]});
      if (!TakeFlow(&rest, before[name], &out.flows.back())) return false;
    }
    return TakeNumber32(&rest, &out.other_flows) && TakeVarint(&rest, &out.other_bytes) &&
           TakeNumber32(&rest, &out.other_retransmits);
  }

  bool Words(WorkSample& out) {
    uint64_t jobs = 0, collectives = 0;
    if (!TakeVarint(&rest, &jobs)) return false;
    for (uint64_t i = 0; i < jobs; ++i) {
      JobSample& job = out.jobs.emplace_back();
      if (!TakeText(&rest, &job.key) || !TakeText(&rest, &job.bytes)) return false;
    }
    if (!TakeVarint(&rest, &collectives)) return false;
    for (uint64_t i = 0; i < collectives; ++i) {
      if (!TakeText(&rest, &out.collectives.emplace_back())) return false;
    }
    return true;
  }

  bool Sample(WorkSample& out) {
    uint64_t step = 0, span = 0;
    if (!TakeVarint(&rest, &step) || !TakeVarint(&rest, &span)) return false;
    time_ns = Apply(step, time_ns);
    out.time_ns = static_cast<int64_t>(time_ns);
    out.from_ns = static_cast<int64_t>(time_ns - span);
    return Flows(out) && Words(out);
  }
};

// What one interval's samples come to.
struct WorkMerge {
  WorkSample out;
  std::map<FlowName, size_t> flows;
  std::map<std::string, size_t> jobs;

  void AddFlow(const FlowSample& s) {
    const auto [at, added] = flows.try_emplace(s.name, out.flows.size());
    if (added) return out.flows.push_back(s);
    FlowSample& into = out.flows[at->second];
    if (s.udp_port != 0) {
      into.udp_port = s.udp_port;
      into.hops = s.hops;
    }
    into.bytes += s.bytes;
    into.retransmits += s.retransmits;
    into.ce += s.ce;
    into.cnps += s.cnps;
    into.delay.Merge(s.delay);
  }

  void Add(const WorkSample& s) {
    out.from_ns = out.empty() ? s.from_ns : std::min(out.from_ns, s.from_ns);
    for (const FlowSample& flow : s.flows) AddFlow(flow);
    out.other_flows = std::max(out.other_flows, s.other_flows);
    out.other_bytes += s.other_bytes;
    out.other_retransmits += s.other_retransmits;
    for (const JobSample& job : s.jobs) {
      const auto [at, added] = jobs.try_emplace(job.key, out.jobs.size());
      added ? out.jobs.push_back(job) : void(out.jobs[at->second] = job);
    }
    out.collectives.insert(out.collectives.end(), s.collectives.begin(), s.collectives.end());
  }
};

}  // namespace

size_t MemoryOf(const WorkSample& sample) {
  size_t bytes = sizeof(WorkSample);
  for (const FlowSample& flow : sample.flows) {
    bytes += sizeof(FlowSample) + flow.name.peer.size() + flow.name.process.size() + flow.name.label.size() +
             2 * flow.delay.buckets.size() * sizeof(PackedSketch::Bucket);
  }
  for (const JobSample& job : sample.jobs) bytes += sizeof(JobSample) + job.key.size() + job.bytes.size();
  for (const std::string& collective : sample.collectives) bytes += sizeof(std::string) + collective.size();
  return bytes;
}

void SortWork(std::vector<WorkSample>& samples) {
  std::stable_sort(samples.begin(), samples.end(),
                   [](const WorkSample& a, const WorkSample& b) { return a.time_ns < b.time_ns; });
  samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
}

std::string PackWork(const std::vector<WorkSample>& samples) {
  std::map<FlowName, size_t> names;
  for (const WorkSample& s : samples) {
    for (const FlowSample& flow : s.flows) names.try_emplace(flow.name, 0);
  }
  std::string plain;
  PutVarint(names.size(), &plain);
  size_t place = 0;
  for (auto& [name, number] : names) {
    PutName(name, &plain);
    number = place++;
  }
  std::vector<FlowBefore> before(names.size());
  uint64_t time_ns = 0;
  for (const WorkSample& s : samples) {
    PutVarint(Change(static_cast<uint64_t>(s.time_ns), time_ns), &plain);
    PutVarint(static_cast<uint64_t>(s.time_ns) - static_cast<uint64_t>(s.from_ns), &plain);
    time_ns = static_cast<uint64_t>(s.time_ns);
    PutVarint(s.flows.size(), &plain);
    for (const FlowSample& flow : s.flows) {
      const size_t number = names.at(flow.name);
      PutVarint(number, &plain);
      PutFlow(flow, before[number], &plain);
    }
    PutVarint(s.other_flows, &plain);
    PutVarint(s.other_bytes, &plain);
    PutVarint(s.other_retransmits, &plain);
    PutVarint(s.jobs.size(), &plain);
    for (const JobSample& job : s.jobs) {
      PutText(job.key, &plain);
      PutText(job.bytes, &plain);
    }
    PutVarint(s.collectives.size(), &plain);
    for (const std::string& collective : s.collectives) PutText(collective, &plain);
  }
  return Deflated(plain);
}

absl::StatusOr<std::vector<WorkSample>> UnpackWork(absl::string_view blob) {
  std::string plain;
  if (!Inflate(blob, &plain)) return BadWork();
  WorkReader reader{.rest = plain, .names = {}, .before = {}};
  if (!reader.Names()) return BadWork();
  std::vector<WorkSample> samples;
  while (!reader.rest.empty()) {
    if (!reader.Sample(samples.emplace_back())) return BadWork();
  }
  return samples;
}

WorkSample MergeWork(const std::vector<WorkSample>& samples) {
  WorkMerge merge;
  for (const WorkSample& s : samples) {
    merge.Add(s);
    merge.out.time_ns = std::max(merge.out.time_ns, s.time_ns);
  }
  return std::move(merge.out);
}

std::vector<WorkSample> CoarsenWork(const std::vector<WorkSample>& samples, absl::Duration interval) {
  const int64_t step = absl::ToInt64Nanoseconds(interval);
  std::vector<WorkSample> merged;
  for (size_t i = 0; i < samples.size();) {
    const int64_t rest = ((samples[i].time_ns % step) + step) % step;
    const int64_t end = rest == 0 ? samples[i].time_ns : samples[i].time_ns - rest + step;
    WorkMerge merge;
    for (; i < samples.size() && samples[i].time_ns <= end; ++i) merge.Add(samples[i]);
    merge.out.time_ns = end;
    merged.push_back(std::move(merge.out));
  }
  return merged;
}

}  // namespace cw::fleet
