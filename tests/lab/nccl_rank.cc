// SPDX-License-Identifier: Apache-2.0
//
// One rank of jobs_test: a process that drives the profiler plug-in as NCCL would while the emulator's queue pairs
// carry its messages: cw_nccl_rank PLUGIN RANK SEND|RECEIVE QPN QPN. It ends with its standard input, or after two
// minutes.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "nccl_rank.h"
#include "tests/unit/nccl_harness.h"
#include "userspace/model/clock.h"

namespace cw::lab {
namespace {

using nccl::Plugin;

struct Channel {
  nccl::OpSpec spec;
  uint32_t qpn = 0;
  void* op = nullptr;
  void* step = nullptr;
  void* request = nullptr;
  int steps = 0;
  uint32_t stamps = 0;
};

class Rank {
 public:
  Rank(Plugin& plugin, void* context, bool send, const std::vector<uint32_t>& qpns)
      : plugin_(plugin), context_(context), send_(send), channels_(qpns.size()) {
    for (size_t i = 0; i < qpns.size(); ++i) {
      channels_[i].qpn = qpns[i];
      channels_[i].spec = {.peer = send ? 1 : 0, .channel = static_cast<int>(i), .send = send, .steps = 1000};
    }
  }

  void Do(const RankMessage& message) {
    switch (message.order) {
      case RankOrder::kBegin:
        coll_ = plugin_.StartColl(context_, {.seq = message.seq, .count = 1 << 20});
        plugin_.Stop(coll_);
        for (Channel& channel : channels_) {
          channel.op = plugin_.StartOp(context_, channel.spec, coll_);
          channel.steps = 0;
          channel.stamps = 0;
          Post(channel);
        }
        return;
      case RankOrder::kComplete:
        if (message.channel >= channels_.size()) return;
        Complete(channels_[message.channel]);
        Post(channels_[message.channel]);
        return;
      case RankOrder::kFinish:
        if (message.channel < channels_.size()) Finish(channels_[message.channel]);
        return;
      case RankOrder::kEnd:
        for (Channel& channel : channels_) Finish(channel);
        return;
    }
  }

 private:
  void Post(Channel& channel) {
    channel.step = plugin_.StartStep(context_, channel.steps++, channel.op);
    plugin_.State(channel.step, send_ ? CW_NCCL_SEND_GPU_WAIT : CW_NCCL_RECV_WAIT);
    if (send_) plugin_.State(channel.step, CW_NCCL_SEND_PEER_WAIT);
    Timed(channel, send_, [&] {
      channel.request = plugin_.StartNet(context_, {channel.qpn, 65536}, send_, channel.step);
    });
    if (send_) plugin_.State(channel.step, CW_NCCL_SEND_WAIT, 65536);
  }
  template <typename Call>
  void Timed(Channel& channel, bool tell, const Call& call) {
    RankStamp stamp{.channel = static_cast<uint32_t>(channel.spec.channel)};
    stamp.before_ns = MonotonicClock().NowNs();
    call();
    stamp.after_ns = MonotonicClock().NowNs();
    if (!tell) return;
    stamp.number = channel.stamps++;
    (void)send(STDIN_FILENO, &stamp, sizeof(stamp), MSG_NOSIGNAL);
  }
  void Finish(Channel& channel) {
    if (channel.op == nullptr) return;
    Complete(channel);
    plugin_.Stop(channel.op);
    channel.op = nullptr;
  }
  void Complete(Channel& channel) {
    Timed(channel, !send_, [&] { plugin_.Stop(channel.request); });
    if (!send_) plugin_.State(channel.step, CW_NCCL_RECV_FLUSH_WAIT, 65536);
    if (!send_) plugin_.State(channel.step, CW_NCCL_RECV_GPU_WAIT, 65536);
    plugin_.Stop(channel.step);
  }

  Plugin& plugin_;
  void* context_;
  bool send_;
  std::vector<Channel> channels_;
  void* coll_ = nullptr;
};

int Run(int argc, char** argv) {
  if (argc != 4 + kRankChannels) return 2;
  alarm(120);
  Plugin plugin(argv[1], 6);
  if (!plugin.ok()) return 1;
  int mask = 0;
  void* context = plugin.Init(0xc0ffee, "world", 2, 2, std::atoi(argv[2]), &mask);
  std::vector<uint32_t> qpns;
  for (int i = 4; i < argc; ++i) qpns.push_back(static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 0)));
  Rank rank(plugin, context, std::strcmp(argv[3], "SEND") == 0, qpns);
  RankMessage message;
  while (recv(STDIN_FILENO, &message, sizeof(message), 0) == static_cast<ssize_t>(sizeof(message))) rank.Do(message);
  plugin.Finalize(context);
  return plugin.failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace cw::lab

int main(int argc, char** argv) { return cw::lab::Run(argc, argv); }
