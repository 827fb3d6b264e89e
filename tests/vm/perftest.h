// SPDX-License-Identifier: Apache-2.0
// perftest's own programs between two machines, and what the soft-RoCE device tells about them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/vm/rack.h"

namespace cw::vm {

struct PerftestOptions {
  std::string tool = "ib_write_bw";
  // Given to both ends. -u 18: an acknowledgement may take a second; perftest's 67 ms end by themselves on a busy host,
  // and soft-RoCE then sends again what is merely late.
  std::string arguments = "-q 4 -D 5 -s 65536 -u 18";
  int port = 18515;  // of its own connection, on the management network; one per run at a time
};

struct PerftestResult {
  double average_mb_per_s = 0;  // in perftest's unit: 2^20 bytes
  uint64_t message_bytes = 0;
  uint64_t messages = 0;  // that it counted; with -D it leaves out the run's beginning and end
  std::string output;     // the client's
};

// One run from machine 0 (client, sends) to machine 1 (server). Destruction kills both ends.
class Perftest {
 public:
  // Returns when the server listens and the client has been started.
  static absl::StatusOr<std::unique_ptr<Perftest>> Start(Rack& rack, const PerftestOptions& options);
  // Both ends have ended without an error and the report could be read, or an error that tells their output.
  absl::StatusOr<PerftestResult> Wait(absl::Duration timeout);
  // Wait, after telling a run with -D (writes, reads) that its time is over: nobody waits for what no test looks at. -D
  // 400 keeps perftest's own steps, the first after a quarter of it, away from these: two at once measure nothing.
  absl::StatusOr<PerftestResult> Finish(absl::Duration timeout);
  bool running() const { return client_->running(); }

 private:
  explicit Perftest(Rack& rack) : rack_(rack) {}
  std::string WhereItHangs();

  Rack& rack_;
  std::unique_ptr<Command> server_, client_;
};

// What RDMA netlink lists (`rdma resource show qp`), of one type: RC, UC, UD.
struct QueuePair {
  uint32_t lqpn = 0, rqpn = 0;
  int pid = 0;
  std::string comm, state;
};
absl::StatusOr<std::vector<QueuePair>> QueuePairs(Vm& machine, const std::string& type = "RC");
// Waits until `count` of them are ready to send.
absl::StatusOr<std::vector<QueuePair>> WaitForQueuePairs(Vm& machine, size_t count, absl::Duration timeout,
                                                         const std::string& type = "RC");

// The files of /sys/class/infiniband/rxe0/ports/1/hw_counters by name. A lost or reordered packet shows as
// out_of_seq_request at the receiver and rcvd_seq_err at the sender.
absl::StatusOr<std::map<std::string, uint64_t>> RxeCounters(Vm& machine);

}  // namespace cw::vm
