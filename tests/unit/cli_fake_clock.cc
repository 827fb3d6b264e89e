// SPDX-License-Identifier: Apache-2.0
#include "cli_fake_clock.h"

#include <string>

namespace cw::api {
namespace {

v1::ClockSource& AddSource(v1::ClockReply& reply, const std::string& name, v1::ClockSource::Reason reason,
                           const char* letter, double disagreement_ns) {
  v1::ClockSource& source = *reply.mutable_sources()->add_sources();
  source.set_name(name);
  source.set_reason(reason);
  source.set_letter(letter);
  source.mutable_link()->set_state(v1::PeerClock::STATE_SYNCED);
  source.mutable_link()->set_offset_ns(-1000000123);
  source.mutable_link()->set_error_est_ns(95);
  source.mutable_link()->set_bound_ns(5210);
  source.set_min_rtt_ns(10400);
  source.set_disagreement_ns(disagreement_ns);
  source.set_claim_ago_s(0.08);
  source.set_state(v1::ClockTracking::STATE_SYNCHRONISED);
  source.set_timeline("4fd1c02a77e6b010");
  return source;
}

void AddTerm(v1::ClockReply& reply, const char* name, double ns, const char* text) {
  v1::ClockBoundTerm& term = *reply.mutable_bound()->add_terms();
  term.set_name(name);
  term.set_ns(ns);
  term.set_text(text);
  reply.mutable_bound()->set_bound_ns(reply.bound().bound_ns() + ns);
}

}  // namespace

v1::ClockReply KnownClock() {
  v1::ClockReply reply;
  v1::ClockTracking& t = *reply.mutable_tracking();
  t.set_host_name("node1");
  t.set_state(v1::ClockTracking::STATE_SYNCHRONISED);
  t.set_timeline("4fd1c02a77e6b010");
  t.set_epoch(2);
  t.set_local_ns(1'234'567'890'123);
  t.set_offset_ns(-1'000'000'077);
  t.set_fleet_ns(t.local_ns() + t.offset_ns());
  t.set_rate_ppb(-12345.678);
  t.set_error_est_ns(35);
  t.set_bound_ns(5660);
  t.set_reference("node0");
  t.set_hops(1);
  t.set_residual_ns(21);
  t.set_neighbours_used(2);
  t.set_neighbours(4);
  t.set_peers(9);
  t.set_updated_ago_s(0.05);
  t.set_anchor("realtime");
  t.set_anchor_note("the kernel's clock is not synchronised");
  t.mutable_tai()->set_now_ns(1'700'000'037'123'456'789);
  t.mutable_tai()->set_bound_ns(1'200'000);
  t.mutable_tai()->set_hops(2);
  AddSource(reply, "node2", v1::ClockSource::REASON_USED, "*", -12).set_weight(0.5);
  AddSource(reply, "node3", v1::ClockSource::REASON_FALSE_TICKER, "x", 100'035);
  v1::ClockSource& silent = AddSource(reply, "node4", v1::ClockSource::REASON_WAITING, "w", 0);
  silent.mutable_link()->set_state(v1::PeerClock::STATE_UNKNOWN);
  silent.set_claim_ago_s(-1);
  silent.clear_timeline();
  v1::ClockAnchor& anchor = *reply.mutable_sources()->add_anchors();
  anchor.set_host("node3");
  anchor.set_reason(v1::ClockSource::REASON_FALSE_TICKER);
  anchor.set_letter("x");
  anchor.set_offset_ns(230'000'000);
  anchor.set_bound_ns(40'000);
  anchor.set_hops(1);
  anchor.set_smears(true);
  anchor.set_contradicts(true);
  v1::ClockLink& link = *reply.mutable_mesh()->add_links();
  link.set_from("node1");
  link.set_to("node3");
  link.set_offset_ns(2'000'000'000);
  link.set_error_est_ns(95);
  link.set_bound_ns(5210);
  link.set_min_rtt_ns(10400);
  link.set_residual_ns(-1812);
  link.set_ratio(14.2);
  link.set_suspect("one way is slower by 3.62 µs, or node3 lies");
  reply.mutable_mesh()->set_suspects("node1–node3 disagrees with the rest");
  reply.mutable_bound()->set_reference("node0");
  AddTerm(reply, "reference", 0, "node0 itself");
  AddTerm(reply, "link to node0", 5200, "half the lowest round trip, 10.4 µs");
  AddTerm(reply, "age", 460, "200 ppm over 2.3 ms");
  return reply;
}

v1::ClockReply RefusedClock() {
  v1::ClockReply reply;
  v1::ClockTracking& t = *reply.mutable_tracking();
  t.set_host_name("node1");
  t.set_why("no majority: 2 of 4 neighbours contradict the others");
  t.set_updated_ago_s(-1);
  t.set_anchor("none");
  return reply;
}

}  // namespace cw::api
