// SPDX-License-Identifier: Apache-2.0
#include "nccl_harness.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cw::nccl {

Plugin::Plugin(const std::string& path, int version) : version_(version) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return;
  }
  table_ = static_cast<cw_nccl_profiler*>(dlsym(library, ("ncclProfiler_v" + std::to_string(version)).c_str()));
}

void* Plugin::Init(uint64_t id, const std::string& name, int nodes, int ranks, int rank, int* mask) {
  void* context = nullptr;
  Check(version_ == 4 ? table_->init.v4(&context, mask, name.c_str(), id, nodes, ranks, rank, nullptr)
                      : table_->init.v5(&context, id, mask, name.c_str(), nodes, ranks, rank, nullptr));
  return context;
}

void* Plugin::Start(void* context, uint32_t type, void* parent, const std::function<void(cw_nccl_event&)>& fill) {
  cw_nccl_event event;
  std::memset(&event, 0, sizeof(event));
  event.type = type;
  event.parent = parent;
  fill(event);
  if (version_ == 4) {  // one byte; the rest is whatever was there
    std::memset(&event, 0xaa, sizeof(event.type));
    std::memcpy(&event, &type, 1);
  }
  const size_t size = cw_nccl_event_size(version_);
  void* exact = std::malloc(size);  // so that a sanitizer sees who reads on
  std::memcpy(exact, &event, size);
  void* handle = reinterpret_cast<void*>(~uintptr_t{0});
  Check(table_->start(context, &handle, static_cast<cw_nccl_event*>(exact)));
  std::memset(exact, 0xee, size);
  std::free(exact);
  return handle;
}

void* Plugin::StartColl(void* context, const CollSpec& spec, void* parent) {
  if (spec.p2p) {
    return Start(context, CW_NCCL_P2P, parent, [&](cw_nccl_event& e) {
      e.u.p2p.function = spec.function;
      e.u.p2p.datatype = spec.datatype;
      e.u.p2p.count = spec.count;
      e.u.p2p.peer = spec.peer;
      e.u.p2p.channels = 1;
    });
  }
  return Start(context, CW_NCCL_COLL, parent, [&](cw_nccl_event& e) {
    e.u.coll.seq = spec.seq;
    e.u.coll.function = spec.function;
    e.u.coll.count = spec.count;
    e.u.coll.datatype = spec.datatype;
    e.u.coll.channels = 2;
    e.u.coll.algorithm = "RING";
    e.u.coll.protocol = "SIMPLE";
  });
}

void* Plugin::StartOp(void* context, const OpSpec& spec, void* parent) {
  return Start(context, CW_NCCL_PROXY_OP, parent, [&](cw_nccl_event& e) {
    e.u.op.pid = spec.pid != 0 ? spec.pid : getpid();
    e.u.op.channel = static_cast<uint8_t>(spec.channel);
    e.u.op.peer = spec.peer;
    e.u.op.steps = spec.steps;
    e.u.op.chunk = static_cast<int>(spec.step_bytes);
    e.u.op.is_send = spec.send ? 1 : 0;
  });
}

void* Plugin::StartStep(void* context, int step, void* parent) {
  return Start(context, CW_NCCL_PROXY_STEP, parent, [&](cw_nccl_event& e) { e.u.step.step = step; });
}

void* Plugin::StartNet(void* context, const QpUse& use, bool send, void* parent) {
  cw_nccl_net_ib data;
  std::memset(&data, 0, sizeof(data));
  data.type = 1;
  data.qpn = static_cast<int>(use.qpn);
  data.length = send ? use.bytes : 0;
  void* handle = Start(context, CW_NCCL_NET_PLUGIN, parent, [&](cw_nccl_event& e) {
    e.u.net.id = CW_NCCL_NET_IB_1;
    e.u.net.data = &data;
  });
  std::memset(&data, 0xee, sizeof(data));  // NCCL uses it again
  return handle;
}

void* Plugin::StartOther(void* context, uint32_t type, void* parent) {
  return Start(context, type, parent, [](cw_nccl_event&) {});
}

void Plugin::State(void* handle, int state, size_t bytes) {
  if (handle == nullptr) return;  // as NCCL does
  cw_nccl_state_args args{};
  args.step_bytes = bytes;
  Check(table_->state(handle, state, &args));
}

void Plugin::Stop(void* handle) {
  if (handle != nullptr) Check(table_->stop(handle));
}

void Plugin::RunOp(void* context, const OpSpec& spec, void* parent) {
  void* op = StartOp(context, spec, parent);
  State(op, CW_NCCL_OP_IN_PROGRESS);
  for (int i = 0; i < spec.steps; ++i) {
    void* step = op == nullptr ? nullptr : StartStep(context, i, op);
    std::vector<void*> requests;
    const auto post = [&] {
      for (const QpUse& use : spec.qps)
        requests.push_back(step == nullptr ? nullptr : StartNet(context, use, spec.send, step));
    };
    if (!spec.send) post();
    State(step, spec.send ? CW_NCCL_SEND_GPU_WAIT : CW_NCCL_RECV_WAIT);
    spec.first(i);
    if (!spec.send) {
      for (void* request : requests) Stop(request);
    }
    State(step, spec.send ? CW_NCCL_SEND_PEER_WAIT : CW_NCCL_RECV_FLUSH_WAIT, spec.send ? 0 : spec.step_bytes);
    spec.second(i);
    if (spec.send) post();
    State(step, spec.send ? CW_NCCL_SEND_WAIT : CW_NCCL_RECV_GPU_WAIT, spec.step_bytes);
    spec.third(i);
    if (spec.send) {
      for (void* request : requests) Stop(request);
    }
    Stop(step);
  }
  Stop(op);
}

void Plugin::Run(void* context, const CollSpec& spec) {
  void* group = StartOther(context, CW_NCCL_GROUP_API, nullptr);
  void* api = StartOther(context, spec.p2p ? CW_NCCL_P2P_API : CW_NCCL_COLL_API, group);
  void* coll = StartColl(context, spec, api);
  Stop(coll);  // enqueued; what follows is the proxy's
  Stop(api);
  Stop(group);
  for (const OpSpec& op : spec.ops) RunOp(context, op, coll);
}

}  // namespace cw::nccl
