// SPDX-License-Identifier: Apache-2.0
//
// Metrics of a running agent: answers Prometheus, and looks once a second at what has to be counted as it happens
// (events, carriers of links). It asks the agent as cwctl does, on threads of its own, so the agent's loop never waits
// for it. Readings within a quarter of a second share one page, so that nobody keeps the loop busy by asking often.
//
// Thread rule: Start and the destructor on one thread; the agent must live as long as the exporter.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/api/agent_api.h"
#include "userspace/config/listen.h"
#include "userspace/metrics/link_flaps.h"
#include "userspace/metrics/path_totals.h"

namespace cw::metrics {

struct ExporterOptions {
  config::Listen listen;
  std::vector<std::string> nics;  // network devices whose links are watched
  size_t worst_paths = 0, top_flows = 0;
  std::string run_dir;            // keeps flaps of links over restarts; "" = nowhere
  std::string boot;               // names this boot of the kernel
  std::string sys_root = "/sys";  // of hw_counters
  std::function<absl::StatusOr<LinkReading>(const std::string& nic)> read_link = [](const std::string& nic) {
    return ReadLink(nic);
  };
};

class Exporter {
 public:
  using PathTotalsFn = std::function<absl::StatusOr<PathTotals>()>;

  // An address that cannot be had is said in the log and tried again every second: it is no reason not to watch over
  // the fabric.
  static std::unique_ptr<Exporter> Start(ExporterOptions options, api::AgentView& view, PathTotalsFn totals);
  ~Exporter();

 private:
  struct Impl;
  explicit Exporter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::metrics
