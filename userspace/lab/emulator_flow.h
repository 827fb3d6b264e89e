// SPDX-License-Identifier: Apache-2.0
// One end of a flow's queue pair: the protocol, what is measured there, and the posting of the job's messages.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "userspace/lab/emulator_port.h"
#include "userspace/lab/emulator_qp.h"
#include "userspace/lab/emulator_stats.h"
#include "userspace/lab/job.h"

namespace cw::lab {

// Shared by all flows of a job; the atomics are the all-to-all barrier between workers.
struct JobState {
  JobSpec spec;
  int64_t start_ns = 0;
  int flows = 0;
  std::atomic<int> round{0};
  std::atomic<int> in_round{0};    // flows that have not finished this round
  std::atomic<int> unfinished{0};  // flows that have not finished the job
};

struct KernelStamp {
  uint32_t psn = 0;
  int64_t realtime_ns = 0;
};

struct EndpointSpec {
  int flow = 0;
  int host = 0;  // index of this end
  bool posts = false;
  bool receives = false;  // payload comes to this end
  uint32_t address = 0;
  uint32_t remote_address = 0;
  uint16_t source_port = 0;
  QpConfig qp;
  int64_t origin_ns = 0;
  int64_t bin_ns = 0;
  size_t max_bins = 0;
  size_t arrivals = 0;
};

// Thread rule: everything under the lock of the worker that owns the host.
class Endpoint : public QpObserver {
 public:
  Endpoint(const EndpointSpec& spec, JobState* job);

  // Posts what the job wants posted at `now_ns`, and tells the job when this flow has nothing more to do.
  void Drive(int64_t now_ns);
  void Receive(const RocePacket& packet, int64_t now_ns);
  // The next packet to send now, with addresses; false: none.
  bool PollTransmit(int64_t now_ns, RocePacket* packet);
  void AddStamp(const RocePacket& packet, bool sent, int64_t realtime_ns);
  // Drive or PollTransmit may have something from then on.
  int64_t NextEventNs(int64_t now_ns) const;

  void OnData(int64_t now_ns, uint32_t psn, uint32_t bytes, bool in_order) override;
  void OnMessageDelivered(int64_t now_ns, uint64_t va, uint64_t bytes) override;
  void OnMessageDone(int64_t now_ns, const Message& message, int64_t posted_ns) override;
  void OnProgress(int64_t now_ns, int64_t stall_ns) override;
  void OnDead(int64_t now_ns) override;
  void OnNak(int64_t now_ns) override { send_.OnNak(now_ns); }

  const EndpointSpec& spec() const { return spec_; }
  const RcQp& qp() const { return qp_; }
  double RateBps(int64_t now_ns) { return qp_.RateBps(now_ns); }
  const SendStats& send() const { return send_; }
  const ReceiveStats& receive() const { return receive_; }
  const ArrivalRing& arrivals() const { return arrivals_; }
  const std::vector<KernelStamp>& stamps(bool sent) const { return sent ? sent_stamps_ : received_stamps_; }
  // False: the job still wants something of this flow, or it runs until told to stop.
  bool finished() const { return finished_; }

 private:
  bool WantsPost(int64_t now_ns) const;
  bool WantsMore(int64_t now_ns) const;  // now or after a pause
  // Since the present burst began; 0 where there are none.
  int64_t InPeriodNs(int64_t now_ns) const;
  bool Pauses(int64_t now_ns) const;
  void FinishRound();

  EndpointSpec spec_;
  JobState* job_;
  RcQp qp_;
  SendStats send_;
  ReceiveStats receive_;
  ArrivalRing arrivals_;
  std::vector<KernelStamp> sent_stamps_;
  std::vector<KernelStamp> received_stamps_;
  uint16_t ip_id_;
  int round_ = 0;
  uint64_t posted_in_round_ = 0;
  bool round_done_ = false;
  bool finished_ = false;
};

}  // namespace cw::lab
