// SPDX-License-Identifier: Apache-2.0
//
// The peer of the fleet's benchmark: a Prometheus of its own on a port of this machine, told over its remote-write
// protocol (prometheus.io/docs/specs/remote_write_spec, version 1.0) what hosts' batches say as numbers.
// Threads: one.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::bench {

struct Series {
  std::vector<std::pair<std::string, std::string>> labels;  // by name, "__name__" among them
  double value = 0;
};

// The body of one request, all series at one time (ms since 1970). Pure.
std::string WriteRequest(const std::vector<Series>& series, int64_t time_ms);
// In snappy's block format, without compressing: literals alone. Pure.
std::string AsSnappy(const std::string& bytes);

class Prometheus {
 public:
  // NotFound: it is not installed.
  static absl::StatusOr<std::unique_ptr<Prometheus>> Start(const std::string& folder);
  ~Prometheus();

  absl::Status Write(const std::vector<Series>& series, int64_t time_ms);
  pid_t pid() const;
  // Bytes a sample of what was put into blocks; 0: no block yet.
  double BytesOfASample() const;

 private:
  struct Impl;
  explicit Prometheus(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::bench
