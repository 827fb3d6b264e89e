// SPDX-License-Identifier: Apache-2.0
#include "sync/nic_clock.h"

namespace cw::sync {

EstimatorOptions NicTie::Options() {
  EstimatorOptions options;
  options.reply_bias_ns = 0;  // both ways are the same read
  return options;
}

NicTie::NicTie(EstimatorOptions options) : pair_(options) {}

void NicTie::Add(const CrossStamp& read) {
  pair_.AddProbe(read.before_ns, read.nic_ns, read.nic_ns, read.after_ns);
  pair_.AddRemote({read.nic_ns, read.after_ns});
  offset_ns_ = read.nic_ns - read.after_ns;
}

int64_t NicTie::ToHostNs(int64_t nic_ns) const {
  int64_t host_ns = nic_ns - offset_ns_;
  // The line is nearly flat (ppm): each turn shrinks the error ten-thousandfold.
  for (int i = 0; i < 3; ++i) host_ns = nic_ns - pair_.OffsetAt(host_ns);
  return host_ns;
}

}  // namespace cw::sync
