// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/waiting_rank.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/inproc/nccl/nccl_profiler.h"

namespace cw::lab {
namespace {

constexpr char kTable[] = "ncclProfiler_v6";
constexpr char kFile[] = "libnccl-profiler-cwfabric.so";
constexpr uint64_t kCommunicator = 0xc0ffee;
constexpr int kSteps = 1000, kMessage = 65536;

absl::StatusOr<std::string> FindPlugin() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* where : {"../inproc/nccl", "../" CW_LIBDIR "/cwfabric"}) {
    const fs::path file = folder / where / kFile;
    if (fs::exists(file, error)) return file.string();
  }
  return absl::NotFoundError(absl::StrCat(kFile, " is neither built nor installed with ", folder.string()));
}

template <typename Fill>
void* Begun(cw_nccl_profiler& table, void* context, uint64_t type, void* parent, Fill fill) {
  cw_nccl_event event{};
  event.type = type;
  event.parent = parent;
  fill(event);
  void* handle = nullptr;
  return table.start(context, &handle, &event) == 0 ? handle : nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WaitingRank>> WaitingRank::Start(const WaitingRankSpec& spec) {
  absl::StatusOr<std::string> file = spec.plugin.empty() ? FindPlugin() : spec.plugin;
  if (!file.ok()) return file.status();
  setenv("CWFABRIC_INPROC_SOCKET", spec.socket.c_str(), 1);
  setenv("CWFABRIC_JOB", spec.job.c_str(), 1);
  void* library = dlopen(file->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::FailedPreconditionError(dlerror());
  auto* table = static_cast<cw_nccl_profiler*>(dlsym(library, kTable));
  if (table == nullptr) return absl::FailedPreconditionError(absl::StrCat(*file, " has no ", kTable));
  std::unique_ptr<WaitingRank> rank(new WaitingRank(*table));
  if (absl::Status status = rank->Begin(spec.qpns); !status.ok()) return status;
  return rank;
}

absl::Status WaitingRank::Begin(absl::Span<const uint32_t> qpns) {
  int mask = 0;
  if (table_.init.v5(&context_, kCommunicator, &mask, "world", 2, 2, 0, nullptr) != 0 || context_ == nullptr)
    return absl::FailedPreconditionError("the profiler plug-in does not start");
  void* collective = Begun(table_, context_, CW_NCCL_COLL, nullptr, [](cw_nccl_event& e) {
    e.u.coll.seq = 1;
    e.u.coll.function = "AllReduce";
    e.u.coll.count = 1 << 20;
    e.u.coll.datatype = "ncclFloat32";
    e.u.coll.channels = 2;
    e.u.coll.algorithm = "RING";
    e.u.coll.protocol = "SIMPLE";
  });
  if (collective == nullptr) return absl::FailedPreconditionError("the profiler plug-in takes no collective");
  table_.stop(collective);  // it is enqueued; what follows is the proxy's
  for (size_t i = 0; i < qpns.size(); ++i) Post(collective, static_cast<int>(i), qpns[i]);
  return absl::OkStatus();
}

// One request is posted, and its completion does not come.
void WaitingRank::Post(void* collective, int channel, uint32_t qpn) {
  const auto keep = [this](void* handle) {
    if (handle != nullptr) open_.push_back(handle);
    return handle;
  };
  void* op = keep(Begun(table_, context_, CW_NCCL_PROXY_OP, collective, [&](cw_nccl_event& e) {
    e.u.op = {.pid = getpid(),
              .channel = static_cast<uint8_t>(channel),
              .peer = 1,
              .steps = kSteps,
              .chunk = kMessage,
              .is_send = 1};
  }));
  if (op == nullptr) return;
  void* step = keep(Begun(table_, context_, CW_NCCL_PROXY_STEP, op, [](cw_nccl_event& e) { e.u.step.step = 0; }));
  if (step == nullptr) return;
  cw_nccl_state_args args{};
  table_.state(step, CW_NCCL_SEND_GPU_WAIT, &args);
  table_.state(step, CW_NCCL_SEND_PEER_WAIT, &args);
  cw_nccl_net_ib data{};
  data.type = 1;
  data.qpn = static_cast<int>(qpn);
  data.length = kMessage;
  keep(Begun(table_, context_, CW_NCCL_NET_PLUGIN, step, [&](cw_nccl_event& e) {
    e.u.net.id = CW_NCCL_NET_IB_1;
    e.u.net.data = &data;
  }));
  args.step_bytes = kMessage;
  table_.state(step, CW_NCCL_SEND_WAIT, &args);
}

WaitingRank::~WaitingRank() {
  for (auto handle = open_.rbegin(); handle != open_.rend(); ++handle) table_.stop(*handle);
  if (context_ != nullptr) table_.finalize(context_);
}

}  // namespace cw::lab
