// SPDX-License-Identifier: Apache-2.0
// Any bytes as an incident's file: what is read can be shown and replayed, whatever it says. A second way in puts the
// input into a good file as a host's second, since chance finds no checksum.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "userspace/fleet/incidents/bundle.h"
#include "userspace/fleet/incidents/replay.h"
#include "userspace/fleet/incidents/view.h"
#include "userspace/uplink/spool_format.h"

namespace {

namespace pb = cwfabric::v1;

void Require(bool holds) {
  if (!holds) abort();
}

bool Use(const std::string& file) {
  const absl::StatusOr<cw::fleet::Bundle> bundle = cw::fleet::ReadBundle(file);
  if (!bundle.ok()) {
    Require(!bundle.status().message().empty());
    return false;
  }
  (void)cw::fleet::ViewOf(*bundle);
  (void)cw::fleet::Replay(*bundle, {}, {});
  return true;
}

std::string Framed(uint64_t position, const pb::IncidentRecord& record) {
  return cw::uplink::EncodeFrame({cw::uplink::Kind::kDetail, position, 1, position, 0}, record.SerializeAsString());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  Use(input);
  pb::IncidentRecord head, seconds, whole, last;
  head.mutable_head()->set_id("0000000000000001");
  head.mutable_head()->add_hosts()->set_host("h0");
  seconds.mutable_seconds()->set_host("h0");
  seconds.mutable_seconds()->add_seconds(input);
  std::string file(cw::fleet::kBundleMark);
  file += std::string(cw::uplink::kSegmentHead) + Framed(1, head) + Framed(2, seconds);
  uint32_t records = 2;
  if (whole.ParseFromString(input) && !whole.has_head()) file += Framed(++records, whole);
  last.set_records(records);
  file += Framed(records + 1, last);
  Require(Use(file));
  return 0;
}
