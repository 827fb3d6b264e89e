// SPDX-License-Identifier: Apache-2.0
// The moment at which a queue pair is connected, with its peer's address, from the kernel itself: bpf/qp_watch.bpf.c at
// ib_core. What is told may still fail, and what is not told (a full ring) is in RDMA netlink's list seconds later.
//
// Needs CAP_BPF and CAP_PERFMON, the module ib_core with its BTF (/sys/kernel/btf/ib_core), and kprobes.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "maps/qp_watch.h"

struct ring_buffer;
struct qp_watch;

namespace cw::rdma {

// Where the fields are in this kernel. btf_folder: /sys/kernel/btf. NotFound: ib_core is not loaded, or a field is not
// where it has been since Linux 5.14.
absl::StatusOr<cw_qp_layout> ReadQpLayout(const std::string& btf_folder);

class QpMonitor {
 public:
  using Callback = std::function<void(const cw_ev_qp& event)>;
  // The error says what is missing.
  static absl::StatusOr<std::unique_ptr<QpMonitor>> Open(Callback tell,
                                                         const std::string& btf_folder = "/sys/kernel/btf");
  ~QpMonitor();
  QpMonitor(const QpMonitor&) = delete;
  QpMonitor& operator=(const QpMonitor&) = delete;

  int fd() const;  // readable when there is an event
  void Poll();     // tells of all that are there

 private:
  explicit QpMonitor(Callback tell) : tell_(std::move(tell)) {}
  static int OnEvent(void* self, void* data, size_t size);

  Callback tell_;
  qp_watch* programs_ = nullptr;
  ring_buffer* ring_ = nullptr;
};

}  // namespace cw::rdma
