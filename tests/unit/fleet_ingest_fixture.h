// SPDX-License-Identifier: Apache-2.0
//
// Ingest on a store in memory, and what hosts send to it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "userspace/fleet/ingest/ingest.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/model/hops_id.h"

namespace cw::fleet {

namespace pb = cwfabric::v1;

inline constexpr uint64_t kRun = 42;
inline const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

inline std::string V4(uint32_t host_order) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(host_order >> shift);
  return bytes;
}

inline pb::Hello Hello(const std::string& host = "a", uint64_t run = kRun) {
  pb::Hello hello;
  hello.set_host(host);
  hello.set_run(run);
  return hello;
}

// A batch with two paths; the first of a run defines them.
inline pb::Batch Batch(uint64_t sequence, const std::string& host = "a", uint64_t run = kRun) {
  pb::Batch batch;
  batch.set_host(host);
  batch.set_run(run);
  batch.set_sequence(sequence);
  batch.set_from_ns(absl::ToUnixNanos(kNow - absl::Seconds(20)) + static_cast<int64_t>(sequence));
  batch.set_to_ns(absl::ToUnixNanos(kNow - absl::Seconds(10)) + static_cast<int64_t>(sequence));
  batch.set_usual_sent(100);
  const std::vector<Addr> hops = {Addr::FromV4(1), Addr{}, Addr::FromV4(2)};
  if (sequence == 1) {
    pb::HopList* list = batch.mutable_definitions()->add_hop_lists();
    list->set_id(HopsId(hops));
    for (const std::string& address : {V4(1), std::string(), V4(2)}) list->add_address(address);
  }
  for (uint32_t p = 1; p <= 2; ++p) {
    if (sequence == 1) {
      pb::PathName* name = batch.mutable_definitions()->add_paths();
      name->set_path(p);
      name->set_local(V4(0x0a000001));
      name->set_remote(V4(0x0a000100 + p));
      name->set_udp_port(0xc001);
      name->set_hops(HopsId(hops));
    }
    PackedSketch queue;
    queue.Add(100 * p, 90);
    pb::PathRecord* path = batch.add_paths();
    path->set_path(p);
    path->set_queue(queue.Pack());
    path->set_base_ns(5000);
    path->set_lost(3);
  }
  return batch;
}

inline pb::FleetEvent Event(uint64_t seq) {
  pb::FleetEvent event;
  event.mutable_event()->set_seq(seq);
  event.mutable_event()->set_type("path");
  event.set_time_ns(absl::ToUnixNanos(kNow));
  return event;
}

inline pb::FlowName NameOfFlow(uint32_t number) {
  pb::FlowName name;
  name.set_flow(number);
  name.set_local(V4(0x0a000001));
  name.set_remote(V4(0x0a000101));
  name.set_qpn(70 + number);
  name.set_pid(5);
  name.set_peer("b");
  name.set_label("llm");
  return name;
}

inline pb::FlowRecord FlowOf(uint32_t number, uint64_t bytes = 1000, uint32_t path = 1) {
  pb::FlowRecord flow;
  flow.set_flow(number);
  flow.set_path(path);
  flow.set_bytes(bytes);
  return flow;
}

class IngestTest : public ::testing::Test {
 protected:
  IngestTest() {
    store_ = OpenSqliteStore(":memory:", {.reserve_bytes = 0}).value();
    Restart();
  }
  void Restart() { ingest_ = std::make_unique<Ingest>(*store_, "one", limits_); }
  pb::Welcome Connect(const std::string& host = "a", uint64_t run = kRun) {
    absl::StatusOr<pb::Welcome> welcome = ingest_->Connect(Hello(host, run), {.names = {host}}, kNow);
    EXPECT_TRUE(welcome.ok()) << welcome.status();
    return welcome.value_or(pb::Welcome());
  }
  // What comes back for one batch, at once or after the store.
  pb::Ack Send(const pb::Batch& batch, const std::string& host = "a") {
    const std::optional<pb::Ack> now = ingest_->Enqueue(host, batch, kNow);
    if (now.has_value()) return *now;
    const auto acks = ingest_->Flush(kNow);
    EXPECT_THAT(acks, ::testing::SizeIs(1));
    return acks.empty() ? pb::Ack() : acks[0].second;
  }

  IngestLimits limits_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Ingest> ingest_;
};

}  // namespace cw::fleet
