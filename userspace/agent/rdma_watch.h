// SPDX-License-Identifier: Apache-2.0
//
// Looks after the RDMA devices of this host in a thread of its own, as reading their files and asking them takes longer
// than the agent's loop may stand. What happens to them is known at once from devices that tell (AsyncEvents, RDMA
// netlink's news), within a second from a look at all ports' states, within ten from a look at everything.
//
// A soft-RoCE device is not held open unless the agent's own probes do so: `rdma link delete` would wait for us.
// Thread rule: Look from any thread; `tell` is called on the watch's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "userspace/api/agent_api.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/host/rdma_findings.h"
#include "userspace/host/rdma_tree.h"
#include "userspace/rdma/async_events.h"
#include "userspace/rdma/nldev_monitor.h"
#include "userspace/telemetry/event_log.h"

namespace cw::agent {

class RdmaWatch {
 public:
  struct Options {
    host::Roots roots;
    std::set<std::string> held;  // devices that probes go by: also soft-RoCE's are held open then
    std::function<void(telemetry::Event)> tell;
    std::function<void(const std::string& netdev, bool up)> port;      // it went up or down
    std::function<void(const std::string& device, bool gone)> device;  // it went, or anything else of it changed
  };
  explicit RdmaWatch(Options options);
  ~RdmaWatch();

  // The devices as they are now. Some milliseconds for each.
  api::v1::NicsReply Look();

 private:
  using CounterKey = std::tuple<std::string, uint32_t, std::string>;  // device, port, name

  void Run();
  bool Wait();  // true: something was told
  void LookAtAll();
  void Listen(const host::RdmaTree& tree);
  void Hear(rdma::AsyncEvents& device);
  void KeepBaseline(const host::RdmaTree& tree);
  host::RdmaTree ReadTree() const;
  std::string States() const;
  void AddKnown(api::v1::NicsReply& reply);

  const Options options_;
  int stop_fd_ = -1;

  // of the thread
  host::RdmaTree last_;
  std::string port_states_;
  int64_t looked_ns_ = 0;
  std::unique_ptr<rdma::NldevMonitor> monitor_;
  std::map<std::string, std::unique_ptr<rdma::AsyncEvents>> devices_;

  std::mutex mutex_;  // of what follows
  std::set<std::string> listened_;
  std::map<CounterKey, uint64_t> baseline_;
  int64_t baseline_ns_ = 0;  // monotonic; of the first

  std::thread thread_;  // last: begins when all else is there
};

}  // namespace cw::agent
