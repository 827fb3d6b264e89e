// SPDX-License-Identifier: Apache-2.0
// Writes the fuzzer's seed messages: each kind of body, empty, with one record and as full as it may be.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "userspace/probe/messages.h"

namespace {

using cw::probe::Body;

cw::sync::FleetClaim Claim() {
  cw::sync::FleetClaim claim;
  claim.host_id = 0x1122334455667788;
  claim.timeline = 0x14bb54465;
  claim.state = cw::sync::SyncState::kSynchronised;
  claim.anchor_ns = 118'527'949'120;
  claim.offset_ns = -700'000'000;
  claim.slope_ppb = -1234.567;
  claim.rate_ppb = 98.765;
  claim.error_est_ns = 300;
  claim.reference_id = 7;
  claim.width_ns = 30'000;
  claim.hops = 2;
  claim.tai_offset_ns = 1'790'000'000'000'000'000;
  claim.tai_bound_ns = 5'000;
  claim.tai_hops = 1;
  claim.reference_seq = 1185;
  claim.anchor = {.anchor_id = 9,
                  .offset_ns = 1'790'000'000'000'000'000,
                  .bound_ns = 900,
                  .drift_ppb = 12.5,
                  .age_ns = 10'000'000,
                  .hops = 1};
  return claim;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: cw_make_message_corpus DIRECTORY\n");
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  const auto write = [&](const std::string& name, const Body& body) {
    const absl::StatusOr<std::vector<uint8_t>> bytes = cw::probe::EncodeBody(body);
    if (!bytes.ok()) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), std::string(bytes.status().message()).c_str());
      std::exit(1);
    }
    std::ofstream(std::string(argv[1]) + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
  };
  const cw::probe::SampleHalf sample{.dqpn = 0x11, .psn = 0xffffff, .is_resp = true, .t_rx_ns = 118'527'949'120};
  const cw::probe::ClockPoint point{.slot = 3, .t_tx_ns = -5, .t_rx_ns = 118'527'949'120};
  const cw::sync::Trip trip{.t1_ns = 100'000, .t2_ns = 90'000, .t3_ns = 91'000, .t4_ns = 115'000};
  const cw::probe::LinkRecord link{.host_id = 8, .disagreement_ns = -40, .error_ns = 120};
  const cw::probe::ChunkArrival chunk{.operation = 0x1122334455667788,
                                      .qpn = 0x1a2b,
                                      .number = 3,
                                      .posted = 16,
                                      .bound_ns = 40'000,
                                      .fleet_ns = 118'527'949'120,
                                      .bytes = 1 << 20};
  const auto batches = [&](const std::string& name, bool full) {
    write("samples_" + name, cw::probe::SampleBatch{std::vector(full ? cw::probe::kMaxSamplesPerMessage : 0, sample)});
    write("points_" + name, cw::probe::ClockBatch{std::vector(full ? cw::probe::kMaxClockPointsPerMessage : 0, point)});
    write("death_" + name,
          cw::probe::PathDeath{.slot = 15, .qpns = std::vector(full ? cw::probe::kMaxQpnsPerMessage : 0, 0x1a2bu)});
    write("gaps_" + name, cw::probe::GapReport{false, std::vector(full ? cw::probe::kMaxGapsPerMessage : 0,
                                                                  cw::probe::GapReport::Flow{.qpn = 0x1a2b})});
    write("trips_" + name, cw::probe::TripBatch{.trips = std::vector(full ? cw::probe::kMaxTripsPerMessage : 0, trip)});
    write("chunks_" + name,
          cw::probe::ChunkArrivals{9, std::vector(full ? cw::probe::kMaxChunkArrivalsPerMessage : 0, chunk)});
    write("links_" + name, cw::probe::LinkBatch{std::vector(full ? cw::probe::kMaxLinksPerMessage : 0, link)});
  };
  batches("none", false);
  batches("full", true);
  write("samples_one", cw::probe::SampleBatch{{sample}});
  write("points_one", cw::probe::ClockBatch{{point}});
  const cw::NicReport report{.tag = 2, .silent = true};
  write("nics_one", cw::probe::NicReports{{report}});
  write("question_one", cw::probe::ClassQuestion{.slot = 3, .answer = true, .token = 7});
  write("measures_one", cw::probe::NicMeasures{.nic = cw::Addr{}, .measures = true});
  write("gaps_one", cw::probe::GapReport{true, {{.qpn = 0x1a2b, .known = true, .gaps = 3, .packets = 900}}});
  write("chunks_one", cw::probe::ChunkArrivals{9, {chunk}});
  write("death_one", cw::probe::PathDeath{.slot = 3, .qpns = {0xffffff}});
  write("trips_one", cw::probe::TripBatch{.trips = {trip}});
  write("trips_by_nics", cw::probe::TripBatch{.trips = {trip}, .by_nics = true, .error_ns = 30, .bound_ns = 500});
  write("links_one", cw::probe::LinkBatch{{link}});
  write("hello", cw::probe::Hello{.host = "gpu-0017.rack3", .version = "0.1.0"});
  write("hello_empty", cw::probe::Hello{});
  write("claim", cw::probe::ClockClaim{Claim()});
  cw::sync::FleetClaim without_tai = Claim();
  without_tai.tai_bound_ns = -1;
  without_tai.anchor = {};
  without_tai.state = cw::sync::SyncState::kUnknown;
  write("claim_without_tai", cw::probe::ClockClaim{without_tai});
  return 0;
}
