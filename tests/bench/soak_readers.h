// SPDX-License-Identifier: Apache-2.0
//
// Those who look at the agents all day: clients of the API that come and go, cwctl, and a scraper of metrics; a thread
// for each host. Threads: the functions from one.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "userspace/lab/fabric.h"

namespace cw::bench {

class Readers {
 public:
  Readers(const lab::Fabric& fabric, std::string cwctl);
  ~Readers();

  // Returns when nobody is connected any more, for a look at what the agents hold by themselves.
  void Pause();
  void Resume();

  struct Tally {
    uint64_t reads = 0, failed = 0;
    std::string failure;  // the last one's
  };
  Tally tally() const;

 private:
  struct Host {
    std::string socket, metrics;
  };
  void Loop(const Host& host);
  void Round(const Host& host);
  void Note(const std::string& what, const absl::Status& status);

  const std::string cwctl_;
  mutable absl::Mutex mutex_;
  bool paused_ = false, stopping_ = false;
  int reading_ = 0;
  Tally tally_;
  std::vector<std::thread> threads_;
};

}  // namespace cw::bench
