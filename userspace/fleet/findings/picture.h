// SPDX-License-Identifier: Apache-2.0
//
// What the fleet's findings are made from: the newest word of every host on its paths, itself and others, at one
// moment. Values; times are fleet time, ns since 1970, by the teller's clock, unless said otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "userspace/fleet/findings/sla_rule.h"
#include "userspace/fleet/topology/topology.h"
#include "userspace/fleet/topology/wiring.h"
#include "userspace/model/addr.h"

namespace cw::fleet {

// One direction of one path, as one host tells of it.
struct PathEvidence {
  // Dead: by its host's verdict, while another path to that NIC answers. Paused: its class is held up by flow control,
  // other classes go through. Silent: nothing of it arrives, nor on any other path to that NIC. New: probed for
  // silent_ns, and never a sign of it. No word: nothing to be said of it yet.
  enum class State : uint8_t { kAlive, kDead, kPaused, kSilent, kNew, kNoWord };
  uint32_t host = 0;  // the teller's place in Picture.hosts; paths of one host stand together
  Addr source, destination;
  uint16_t udp_port = 0;
  const std::vector<Addr>* hops = nullptr;  // null: not known; zero address: silent; zero at the end: cut there
  uint64_t hops_id = 0;
  uint32_t reached = 0;  // hops whole before; now only so many of them answer. 0: all do, or it was never whole
  State state = State::kAlive;
  int64_t silent_ns = 0;        // at time_ns; 0: it is not silent
  uint32_t largest_bytes = 0;   // the largest packet that arrives, where full-size ones do not
  bool full_size = false;       // packets of full size arrive; neither: it is not known
  uint32_t sent = 0, lost = 0;  // probes within the newest interval whose fate is known; in this direction
  double queue_ns = 0;          // typical (median) queueing delay; 0 = none or not known
  double base_ns = 0;           // 0 = not known
  int64_t time_ns = 0;          // end of the interval
};

struct NicFact {
  std::string name;
  Addr address;
  std::string rail;                // as configured, "" = not known
  uint32_t mtu = 0, roce_mtu = 0;  // bytes; 0 = not known
  double rate_bps = 0;             // 0 = not known
  std::string trouble;             // why its agent does not measure it now; "" = it does
};

struct HostEvidence {
  std::string name;
  bool connected = false;
  uint64_t run = 0;          // of its agent; 0 = not known
  int64_t last_seen_ns = 0;  // by the service's clock
  int64_t began_ns = 0;      // by the service's clock: when its agent's present run was heard first
  int64_t newest_ns = 0;     // end of its newest interval
  std::vector<NicFact> nics;
  bool clock_known = false, clock_synced = false;
  double clock_bound_ns = 0;  // of its fleet time; 0 = not known
  std::string rack;           // "" = not known
  double late_share = 0;      // of what its programs saw and its agent came too late for, within the newest interval
  std::string refusal;        // why its newest reports do not count; "": they do
};

// From `from` to `to` probes arrive, by the word of the host at `to`, whose own paths back are silent.
struct Arrival {
  Addr from, to;
};

// An event of an agent's log, as far as findings need it.
struct HostEvent {
  std::string host, type, peer, flow;
  uint64_t run = 0;
  int64_t time_ns = 0;
  bool alert = false;
  std::vector<std::pair<std::string, std::string>> evidence;
  bool dry = false;  // in mode observe: it would have been done
};

// A job whose collective stands though the network has nothing of it under way.
struct StandingJob {
  std::string job, host;  // whose process holds it up
  std::string text;       // who waits for whom, a sentence
};

struct Picture {
  int64_t now_ns = 0;  // the service's clock
  std::vector<HostEvidence> hosts;
  std::vector<PathEvidence> paths;  // by host
  std::vector<Arrival> arrivals;
  const Topology* topology = nullptr;
  const WiringReport* wiring = nullptr;
  std::vector<SlaWord> slas;
  std::vector<StandingJob> standing;
  uint64_t fabric = 0;            // another number: another topology, or other NICs of hosts
  std::vector<HostEvent> events;  // new since the picture before, in the order of their arrival
};

}  // namespace cw::fleet
