// SPDX-License-Identifier: Apache-2.0
//
// The kernel's news of network devices (rtnetlink(7), RTNLGRP_LINK) of the network namespace of the thread that opens
// it: carriers, devices that come and go. News say that something changed; what it is now is to be asked. The kernel
// may hold news of a lost carrier back for up to a second after others (net/core/link_watch.c). Thread rule: one thread
// per object.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "absl/status/statusor.h"

namespace cw::dataplane {

class LinkNews {
 public:
  static absl::StatusOr<std::unique_ptr<LinkNews>> Open();
  ~LinkNews();
  LinkNews(const LinkNews&) = delete;
  LinkNews& operator=(const LinkNews&) = delete;

  int fd() const { return fd_; }  // readable when there are news

  struct Changed {
    std::set<uint32_t> ifindexes;
    std::set<uint32_t> removed;  // of those: devices that left this network namespace, or the machine
    bool lost = false;           // and some news were lost: any device may have changed
    bool Has(uint32_t ifindex) const { return lost || ifindexes.contains(ifindex); }
  };
  Changed Take();  // does not wait

 private:
  explicit LinkNews(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace cw::dataplane
