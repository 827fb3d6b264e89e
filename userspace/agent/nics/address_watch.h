// SPDX-License-Identifier: Apache-2.0
//
// The kernel's notifications of addresses (rtnetlink(7), RTNLGRP_IPV4_IFADDR and RTNLGRP_IPV6_IFADDR) of the network
// namespace of the thread that opens it. They say that an address came or went; where it is now is to be asked. Thread
// rule: one thread per object.
#pragma once

#include <memory>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "maps/unique_fd.h"
#include "userspace/model/addr.h"

namespace cw::agent {

class AddressWatch {
 public:
  // An error: the kernel gives no socket.
  static absl::StatusOr<std::unique_ptr<AddressWatch>> Open();

  int fd() const { return fd_.get(); }  // readable when there are notifications

  struct Changed {
    std::set<Addr> addresses;
    bool lost = false;  // and some notifications were lost: any address may have changed
    bool Has(const Addr& address) const { return lost || addresses.contains(address); }
  };
  Changed Take();  // does not wait

 private:
  explicit AddressWatch(maps::UniqueFd fd) : fd_(std::move(fd)) {}
  maps::UniqueFd fd_;
};

}  // namespace cw::agent
