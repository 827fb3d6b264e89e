// SPDX-License-Identifier: Apache-2.0
//
// Drives a profiler plug-in as NCCL does: loads it, takes the table of one version, and makes the calls of a collective
// in NCCL's order, with events whose memory is exactly as large as that version's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "userspace/inproc/nccl/nccl_profiler.h"

namespace cw::nccl {

struct QpUse {
  uint32_t qpn = 0x11;
  size_t bytes = 4096;
};

// One operation of a channel.
struct OpSpec {
  int peer = 1;
  int channel = 0;
  bool send = true;
  int steps = 2;
  size_t step_bytes = 4096;
  std::vector<QpUse> qps = {{}};  // a request each per step; empty: NCCL without NET_PROFILER=1
  int pid = 0;                    // 0: this process
  // What is done while it is in the state, with the step's number: a send's GPU, peer and network; a receive's network,
  // flush, GPU.
  std::function<void(int)> first = [](int) {}, second = [](int) {}, third = [](int) {};
};

struct CollSpec {
  const char* function = "AllReduce";
  uint64_t seq = 1;
  size_t count = 1024;
  const char* datatype = "ncclFloat32";
  std::vector<OpSpec> ops = {OpSpec{}};
  bool p2p = false;
  int peer = 1;
};

class Plugin {
 public:
  Plugin(const std::string& path, int version);
  bool ok() const { return table_ != nullptr; }
  int version() const { return version_; }
  const cw_nccl_profiler& table() const { return *table_; }

  // The mask that the plug-in wants is or-ed into `mask`.
  void* Init(uint64_t id, const std::string& name, int nodes, int ranks, int rank, int* mask);
  void Finalize(void* context) { Check(table_->finalize(context)); }

  void* StartColl(void* context, const CollSpec& spec, void* parent = nullptr);
  void* StartOp(void* context, const OpSpec& spec, void* parent);
  void* StartStep(void* context, int step, void* parent);
  void* StartNet(void* context, const QpUse& use, bool send, void* parent);
  void* StartOther(void* context, uint32_t type, void* parent);  // groups and the like
  void State(void* handle, int state, size_t bytes = 0);
  void Stop(void* handle);

  // From start to the last stop, steps one after the other.
  void Run(void* context, const CollSpec& spec);
  void RunOp(void* context, const OpSpec& spec, void* parent);

  int failures() const { return failures_; }  // calls that did not return 0

 private:
  void* Start(void* context, uint32_t type, void* parent, const std::function<void(cw_nccl_event&)>& fill);
  void Check(int result) { failures_ += result != 0; }

  int version_;
  cw_nccl_profiler* table_ = nullptr;
  int failures_ = 0;
};

}  // namespace cw::nccl
