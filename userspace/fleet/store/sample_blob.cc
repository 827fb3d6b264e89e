// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sample_blob.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "userspace/fleet/store/blob_bytes.h"

namespace cw::fleet {
namespace {

auto PathAndTime(const NumberedSample& s) { return std::make_pair(s.path, s.sample.time_ns); }

absl::Status BadBlob() {
  return absl::DataLossError("a damaged block of samples in the store: restore it, or delete that time's paths");
}

// Differences to the sample before: a path that goes on as it was costs a few bytes besides its sketch.
struct Before {
  uint64_t time_ns = 0, base_ns = 0, sent = 0, hops = 0;
};

void PutSample(const PathSample& s, Before& before, std::string* out) {
  const bool new_hops = s.hops != before.hops;
  const std::string queue = s.queue.Pack();
  *out += static_cast<char>(static_cast<uint8_t>(s.state) | (new_hops ? 0x80 : 0));
  PutVarint(Change(static_cast<uint64_t>(s.time_ns), before.time_ns), out);
  if (new_hops) PutVarint(s.hops, out);
  PutVarint(Change(s.base_ns, before.base_ns), out);
  PutVarint(Change(s.sent, before.sent), out);
  PutVarint(s.lost, out);
  PutVarint(queue.size(), out);
  *out += queue;
  before = {static_cast<uint64_t>(s.time_ns), s.base_ns, s.sent, s.hops};
}

bool TakeSample(absl::string_view* bytes, Before& before, PathSample* s) {
  if (bytes->empty()) return false;
  const auto head = static_cast<uint8_t>(bytes->front());
  bytes->remove_prefix(1);
  uint64_t time = 0, base = 0, sent = 0, queue_size = 0;
  if (!TakeVarint(bytes, &time)) return false;
  if ((head & 0x80) != 0 && !TakeVarint(bytes, &before.hops)) return false;
  if (!TakeVarint(bytes, &base) || !TakeVarint(bytes, &sent) || !TakeNumber32(bytes, &s->lost)) return false;
  if (!TakeVarint(bytes, &queue_size) || queue_size > bytes->size()) return false;
  absl::StatusOr<PackedSketch> queue = PackedSketch::Unpack(bytes->substr(0, queue_size));
  if (!queue.ok()) return false;
  bytes->remove_prefix(queue_size);
  before = {Apply(time, before.time_ns), Apply(base, before.base_ns), Apply(sent, before.sent), before.hops};
  s->state = static_cast<PathState>(head & 0x7f);
  s->time_ns = static_cast<int64_t>(before.time_ns);
  s->hops = before.hops;
  s->base_ns = before.base_ns;
  s->sent = static_cast<uint32_t>(before.sent);
  s->queue = *std::move(queue);
  return true;
}

}  // namespace

void SortSamples(std::vector<NumberedSample>& samples) {
  std::stable_sort(samples.begin(), samples.end(),
                   [](const NumberedSample& a, const NumberedSample& b) { return PathAndTime(a) < PathAndTime(b); });
  // The later of two stays: from the back, so that unique's first is it.
  std::reverse(samples.begin(), samples.end());
  samples.erase(
      std::unique(samples.begin(), samples.end(),
                  [](const NumberedSample& a, const NumberedSample& b) { return PathAndTime(a) == PathAndTime(b); }),
      samples.end());
  std::reverse(samples.begin(), samples.end());
}

std::string PackSamples(const std::vector<NumberedSample>& samples) {
  std::string plain;
  uint64_t last_path = 0;
  Before first;  // of the path before: those of one host resemble each other
  for (size_t i = 0; i < samples.size();) {
    size_t end = i;
    while (end < samples.size() && samples[end].path == samples[i].path) ++end;
    PutVarint(samples[i].path - last_path, &plain);
    PutVarint(end - i, &plain);
    last_path = samples[i].path;
    Before before = first;
    for (size_t at = i; at < end; ++at) {
      PutSample(samples[at].sample, before, &plain);
      if (at == i) first = before;
    }
    i = end;
  }
  return Deflated(plain);
}

absl::StatusOr<std::vector<NumberedSample>> UnpackSamples(absl::string_view blob) {
  std::string plain;
  if (!Inflate(blob, &plain)) return BadBlob();
  std::vector<NumberedSample> samples;
  absl::string_view rest = plain;
  uint64_t path = 0;
  Before first;
  while (!rest.empty()) {
    uint64_t step = 0, count = 0;
    if (!TakeVarint(&rest, &step) || !TakeVarint(&rest, &count) || count == 0 || count > rest.size()) return BadBlob();
    path += step;
    Before before = first;
    for (uint64_t i = 0; i < count; ++i) {
      NumberedSample& s = samples.emplace_back();
      s.path = path;
      if (!TakeSample(&rest, before, &s.sample)) return BadBlob();
      if (i == 0) first = before;
    }
  }
  return samples;
}

std::vector<NumberedSample> Coarsen(const std::vector<NumberedSample>& samples, absl::Duration interval) {
  const int64_t step = absl::ToInt64Nanoseconds(interval);
  const auto end_of = [step](int64_t time_ns) {
    const int64_t rest = ((time_ns % step) + step) % step;
    return rest == 0 ? time_ns : time_ns - rest + step;
  };
  // The worst first; new ones never answered, which is worth less than any other word.
  const auto badness = [](PathState s) {
    switch (s) {
      case PathState::kDead:
        return 5;
      case PathState::kSilent:
        return 4;
      case PathState::kSuspect:
        return 3;
      case PathState::kPaused:
        return 2;
      case PathState::kUp:
        return 1;
      case PathState::kNew:
        break;
    }
    return 0;
  };
  std::vector<NumberedSample> merged;
  for (const NumberedSample& s : samples) {
    const int64_t end = end_of(s.sample.time_ns);
    if (merged.empty() || merged.back().path != s.path || merged.back().sample.time_ns != end) {
      merged.push_back(s);
      merged.back().sample.time_ns = end;
      continue;
    }
    PathSample& into = merged.back().sample;
    if (badness(s.sample.state) > badness(into.state)) into.state = s.sample.state;
    if (s.sample.hops != 0) into.hops = s.sample.hops;
    if (s.sample.base_ns != 0)
      into.base_ns = into.base_ns == 0 ? s.sample.base_ns : std::min(into.base_ns, s.sample.base_ns);
    into.sent += s.sample.sent;
    into.lost += s.sample.lost;
    into.queue.Merge(s.sample.queue);
  }
  return merged;
}

}  // namespace cw::fleet
