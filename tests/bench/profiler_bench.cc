// SPDX-License-Identifier: Apache-2.0
//
// What the NCCL profiler plug-in costs a training process for each call that NCCL makes, with an agent's reader at work
// on the memory ten times per second, as in the agent. A sample is the mean over a hundred rounds.
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/nccl_harness.h"
#include "userspace/lab/bench_result.h"
#include "userspace/model/clock.h"
#include "userspace/profile/hello.h"
#include "userspace/profile/profiles.h"
#include "userspace/rdma/inproc_server.h"

namespace cw::bench {
namespace {

constexpr int kSamples = 1000;
constexpr int kRounds = 100;

int64_t NowNs() { return MonotonicClock().NowNs(); }

// The agent's end, on a thread of its own until it goes out of scope.
class Reader {
 public:
  explicit Reader(const std::string& socket) : profiles_(profile::ProfileOptions{}) {
    auto server = rdma::InprocServer::Listen(
        socket, {.registered = [](const rdma::QpInfo&) {},
                 .unregistered = [](const rdma::QpInfo&) {},
                 .profiler =
                     [this](const rdma::InprocServer::Peer& peer, absl::Span<const uint8_t> message) {
                       const absl::Status status = profile::TakeHello(
                           profiles_, peer.connection, peer.pid, peer.uid, message,
                           [&](const auto& answer, int fd) { return server_->Give(peer.connection, answer, fd); });
                       if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
                       if (!profiles_.empty()) ready_ = true;
                     },
                 .closed = [](const rdma::InprocServer::Peer&) {}});
    if (!server.ok()) {
      std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
      std::exit(1);
    }
    server_ = std::move(*server);
    thread_ = std::thread([this] {
      while (!done_) {
        server_->Poll();
        profiles_.Poll(NowNs(), [](const profile::Stall&) {});
        usleep(100'000);
      }
    });
  }
  ~Reader() {
    done_ = true;
    thread_.join();
  }
  bool Wait() const {
    for (int i = 0; i < 3000 && !ready_; ++i) usleep(10'000);
    return ready_;
  }

 private:
  profile::Profiles profiles_;
  std::unique_ptr<rdma::InprocServer> server_;
  std::atomic<bool> done_{false}, ready_{false};
  std::thread thread_;
};

// ns per call; `round` makes `calls` of them.
template <typename F>
std::vector<double> Measure(int calls, F round) {
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) {
    const int64_t start_ns = NowNs();
    for (int k = 0; k < kRounds; ++k) round();
    samples.push_back(static_cast<double>(NowNs() - start_ns) / kRounds / calls);
  }
  return samples;
}

// As NCCL calls it: the event is on the stack, the table's functions are called directly.
class Calls {
 public:
  Calls(const cw_nccl_profiler& table, void* context) : table_(table), context_(context) {}

  void* Start(uint64_t type, void* parent) {
    event_.type = type;
    event_.parent = parent;
    void* handle = nullptr;
    (void)table_.start(context_, &handle, &event_);
    missing_ += handle == nullptr;
    return handle;
  }
  void* Coll() {
    event_ = {};
    event_.u.coll.function = "AllReduce";
    event_.u.coll.datatype = "ncclBfloat16";
    event_.u.coll.algorithm = "RING";
    event_.u.coll.protocol = "SIMPLE";
    event_.u.coll.count = 1 << 20;
    return Start(CW_NCCL_COLL, nullptr);
  }
  void* Op(void* coll) {
    event_ = {};
    event_.u.op.pid = getpid_;
    event_.u.op.is_send = 1;
    return Start(CW_NCCL_PROXY_OP, coll);
  }
  void* Step(void* op) {
    event_ = {};
    return Start(CW_NCCL_PROXY_STEP, op);
  }
  void* Net(void* step) {
    event_ = {};
    event_.u.net.id = CW_NCCL_NET_IB_1;
    event_.u.net.data = &ib_;
    return Start(CW_NCCL_NET_PLUGIN, step);
  }
  void State(void* handle, int state) {
    cw_nccl_state_args args{};
    args.step_bytes = 65536;
    (void)table_.state(handle, state, &args);
  }
  void Stop(void* handle) { (void)table_.stop(handle); }
  int missing() const { return missing_; }

 private:
  const cw_nccl_profiler& table_;
  void* context_;
  cw_nccl_event event_{};
  cw_nccl_net_ib ib_{.type = 1, .qpn = 0x21, .length = 65536};
  const int32_t getpid_ = getpid();
  int missing_ = 0;
};

void MeasureCalls(Calls& calls, Report& report) {
  const auto add = [&](const char* name, const std::vector<double>& samples) {
    report.Add(name, "cwfabric", "cost", "ns", samples);
  };
  add("collective", Measure(2, [&] { calls.Stop(calls.Coll()); }));
  void* coll = calls.Coll();
  add("proxy_op", Measure(2, [&] { calls.Stop(calls.Op(coll)); }));
  void* op = calls.Op(coll);
  add("proxy_step", Measure(5, [&] {
        void* step = calls.Step(op);
        for (int state : {CW_NCCL_SEND_GPU_WAIT, CW_NCCL_SEND_PEER_WAIT, CW_NCCL_SEND_WAIT}) calls.State(step, state);
        calls.Stop(step);
      }));
  void* step = calls.Step(op);
  add("request", Measure(2, [&] { calls.Stop(calls.Net(step)); }));
  for (void* handle : {step, op, coll}) calls.Stop(handle);
  // A channel's part of a collective with eight chunks, each one request.
  add("all", Measure(4 + 8 * 7, [&] {
        void* whole = calls.Coll();
        void* part = calls.Op(whole);
        for (int i = 0; i < 8; ++i) {
          void* chunk = calls.Step(part);
          calls.State(chunk, CW_NCCL_SEND_GPU_WAIT);
          calls.State(chunk, CW_NCCL_SEND_PEER_WAIT);
          calls.State(chunk, CW_NCCL_SEND_WAIT);
          void* request = calls.Net(chunk);
          calls.Stop(request);
          calls.Stop(chunk);
        }
        calls.Stop(part);
        calls.Stop(whole);
      }));
}

int Run(const std::string& out) {
  std::string folder = "/tmp/cw-profiler-XXXXXX";
  folder = mkdtemp(folder.data());
  setenv("CWFABRIC_INPROC_SOCKET", (folder + "/inproc.sock").c_str(), 1);
  Report report("profiler");
  timespec t{};
  report.Add("clock", "clock_gettime", "cost", "ns", Measure(1, [&] { clock_gettime(CLOCK_MONOTONIC, &t); }));
  int missing = 0;
  {
    Reader reader(folder + "/inproc.sock");
    nccl::Plugin plugin(NCCL_PLUGIN, 6);
    int mask = 0;
    if (!plugin.ok()) return 1;
    void* context = plugin.Init(1, "bench", 2, 8, 0, &mask);
    if (!reader.Wait()) {
      std::fprintf(stderr, "the plug-in did not reach the reader\n");
      return 1;
    }
    Calls calls(plugin.table(), context);
    MeasureCalls(calls, report);
    missing = calls.missing();
    plugin.Finalize(context);
  }
  std::filesystem::remove_all(folder);
  std::printf("%s", report.Table().c_str());
  if (missing > 0) {
    std::fprintf(stderr, "%d events had no room\n", missing);
    return 1;
  }
  const absl::Status written = report.Write(out);
  if (!written.ok()) std::fprintf(stderr, "%s\n", written.ToString().c_str());
  return written.ok() ? 0 : 1;
}

}  // namespace
}  // namespace cw::bench

int main(int argc, char** argv) { return cw::bench::Run(cw::bench::OutPath(argc, argv, "build/bench/profiler.json")); }
