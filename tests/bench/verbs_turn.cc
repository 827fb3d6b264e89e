// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/verbs_turn.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "userspace/dataplane/dataplane.h"
#include "userspace/dataplane/program_runner.h"
#include "userspace/model/clock.h"
#include "userspace/probe/packet.h"
#include "userspace/probe_verbs/responder.h"

namespace cw::bench {
namespace {

const Addr kHere = Addr::FromV4(0x0a000001), kThere = Addr::FromV4(0x0a000002);

// One pair with four live paths and one key for both directions.
absl::Status SetUpPair(dataplane::Dataplane& plane, const probe::MacKey& key) {
  cw_pair pair = {};
  std::copy(kHere.bytes.begin(), kHere.bytes.end(), pair.key.local);
  std::copy(kThere.bytes.begin(), kThere.bytes.end(), pair.key.remote);
  for (int s = 0; s < 4; ++s) {
    pair.slot[s].port = static_cast<uint16_t>(49152 + s);
    pair.slot[s].state = CW_SLOT_UP;
  }
  pair.live_mask = 15;
  pair.interval_ns = 1000000;
  plane.pairs().Write(0, pair);
  cw_pair_keys keys = {};
  std::copy_n(key.k, 2, keys.tx[0]);
  std::copy_n(key.k, 2, keys.rx[0]);
  keys.valid = 1;
  absl::Status status = plane.keys().Put(0, keys);
  status.Update(plane.pair_index().Put(pair.key, 0));
  return status;
}

}  // namespace

absl::StatusOr<std::vector<double>> TurnRounds(int requests) {
  dataplane::Options options;
  options.instance = absl::StrFormat("bench-%d", getpid());
  auto plane = dataplane::Dataplane::Open(options);
  if (!plane.ok()) return plane.status();
  const auto remove = absl::MakeCleanup([&] { (*plane)->DetachAllAndUnpin().IgnoreError(); });
  const probe::MacKey key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
  if (absl::Status s = SetUpPair(**plane, key); !s.ok()) return s;
  const dataplane::ProgramRunner runner((*plane)->xdp_fd(), (*plane)->tc_fd());
  probe::PacketSpec spec;
  spec.local = kThere;
  spec.remote = kHere;
  spec.port = 49152;
  spec.session = 1;
  spec.slots = 1;
  spec.key = key;
  auto request = probe::ProbeTemplate::Make(CW_PROBE_REQUEST, spec);
  if (!request.ok()) return request.status();
  const probe_verbs::Arrival arrival = {.from = kThere, .to = kHere, .traffic_class = 0x6a, .hop_limit = 61};
  const MonotonicClock clock;
  std::vector<double> ns;
  probe_verbs::Frame frame;
  for (int i = 0; i < requests; ++i) {
    request->SetRound(static_cast<uint32_t>(i + 1));
    const auto payload = probe_verbs::Unpack(request->bytes())->payload;
    const int64_t begun_ns = clock.NowNs();
    const probe_verbs::Turned turned = probe_verbs::Turn(runner, arrival, 49152, payload, &frame);
    const int64_t ended_ns = clock.NowNs();
    if (!turned.reply) return absl::InternalError(absl::StrFormat("request %d was not answered", i + 1));
    ns.push_back(static_cast<double>(ended_ns - begun_ns));
  }
  return ns;
}

}  // namespace cw::bench
