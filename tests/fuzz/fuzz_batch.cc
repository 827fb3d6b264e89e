// SPDX-License-Identifier: Apache-2.0
// Any bytes as a batch of a host: what is taken is sound (counts that add up, names that were told, within the limits),
// and nothing crashes. A second way in makes a good batch carry pieces of the input, since chance rarely makes a whole
// one.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "userspace/api/calm_records.h"
#include "userspace/fleet/ingest/translate.h"
#include "userspace/fleet/store/sample_blob.h"
#include "userspace/model/hops_id.h"

namespace {

namespace pb = cwfabric::v1;
constexpr int64_t kNowNs = 1'800'000'000'000'000'000;

void Require(bool holds) {
  if (!holds) abort();
}

void Take(pb::Batch batch, cw::fleet::Names& names) {
  const cw::fleet::BatchLimits limits{.bytes = 1 << 16, .records = 500, .hops = 16, .paths = 1000, .hop_lists = 50};
  const absl::Status unpacked = cw::api::UnpackCalmRecords(limits.records, batch);
  Require(unpacked.ok() == batch.calm_paths().empty());
  absl::Status good = cw::fleet::CheckName(batch, "a");
  good.Update(cw::fleet::CheckBatch(batch, kNowNs, limits));
  if (!good.ok()) return Require(!good.message().empty());
  const cw::fleet::Translated out = cw::fleet::Translate(batch, kNowNs, limits, names);
  Require(out.batch.host == "a" && out.batch.paths.size() <= 500 && names.hop_lists.size() <= 50);
  std::vector<cw::fleet::NumberedSample> samples;
  for (const cw::fleet::PathSample& s : out.batch.paths) {
    Require(s.lost <= s.sent && s.queue.Count() <= s.sent && s.time_ns == batch.to_ns());
    samples.push_back({samples.size(), s});
    samples.back().sample.key = {};
  }
  for (const cw::fleet::HopList& list : out.batch.hop_lists) Require(cw::HopsId(list.hops) == list.id);
  for (const cw::fleet::StoredEvent& e : out.batch.events) Require(e.seq != 0 && e.payload.size() <= limits.text_bytes);
  // What was taken can be stored.
  const auto back = cw::fleet::UnpackSamples(cw::fleet::PackSamples(samples));
  Require(back.ok() && *back == samples);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  cw::fleet::Names names;
  pb::Batch batch;
  if (batch.ParseFromString(input)) Take(batch, names);
  batch.set_host("a");
  batch.set_run(1);
  batch.set_sequence(1);
  batch.set_from_ns(kNowNs - 10);
  batch.set_to_ns(kNowNs);
  batch.set_usual_sent(100);
  pb::PathName* name = batch.mutable_definitions()->add_paths();
  name->set_path(1);
  name->set_local("aaaa");
  name->set_remote(input.substr(0, 16));
  name->set_udp_port(5);
  pb::PathRecord* path = batch.add_paths();
  path->set_path(1);
  path->set_queue(input);
  Take(batch, names);
  batch.set_calm_paths(input);
  Take(batch, names);
  (void)cw::fleet::UnpackSamples(input);
  return 0;
}
