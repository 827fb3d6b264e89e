// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/clock_stamps.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "clock_stamps.skel.h"
#include "tests/bench/clock_stamps_abi.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/netns.h"

namespace cw::bench {
namespace {

// One direction: the program at the sender's egress and the one at the receiver's ingress, until it goes.
class Direction {
 public:
  ~Direction() {
    for (int socket : sockets_) close(socket);
    if (skeleton_ == nullptr) return;
    (void)lab::RunInNetns(receiver_ns_, [] {
      return bpf_xdp_detach(static_cast<int>(if_nametoindex("eth0")), 0, nullptr) == 0 ? absl::OkStatus()
                                                                                       : absl::InternalError("detach");
    });
    (void)lab::RunInNetns(sender_ns_, [] {
      LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = static_cast<int>(if_nametoindex("eth0")),
                  .attach_point = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS));
      return bpf_tc_hook_destroy(&hook) == 0 ? absl::OkStatus() : absl::InternalError("detach");
    });
    clock_stamps__destroy(skeleton_);
  }

  absl::Status Open(const lab::Fabric& fabric, int from, int to) {
    sender_ns_ = fabric.HostNetns(from);
    receiver_ns_ = fabric.HostNetns(to);
    skeleton_ = clock_stamps__open_and_load();
    if (skeleton_ == nullptr) return absl::ErrnoToStatus(errno, "load the stamping programs");
    absl::Status status = lab::RunInNetns(receiver_ns_, [&] {
      const int error =
          bpf_xdp_attach(static_cast<int>(if_nametoindex("eth0")), bpf_program__fd(skeleton_->progs.stamps_ingress),
                         1u << 2 /* XDP_FLAGS_DRV_MODE */, nullptr);
      return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(-error, "attach to XDP");
    });
    if (status.ok()) status = lab::RunInNetns(sender_ns_, [&] { return AttachEgress(); });
    for (int spine = 0; status.ok() && spine < fabric.spec().spines; ++spine)
      status = OpenSocket(fabric, from, to, spine);
    return status;
  }

  // Until `until_ns`; rounds missed are skipped.
  void Send(int64_t interval_ns, int64_t until_ns) {
    const sched_param priority{.sched_priority = 1};
    (void)pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
    stamps_payload payload{};
    payload.magic = htonl(STAMPS_MAGIC);
    for (int64_t next_ns = lab::MonotonicNs(); next_ns < until_ns;) {
      const timespec at{.tv_sec = next_ns / 1'000'000'000, .tv_nsec = next_ns % 1'000'000'000};
      clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
      for (size_t spine = 0; spine < sockets_.size(); ++spine) {
        payload.path = static_cast<uint32_t>(spine);
        (void)send(sockets_[spine], &payload, sizeof(payload), MSG_DONTWAIT);
      }
      next_ns = std::max(next_ns, lab::MonotonicNs() - interval_ns) + interval_ns;
    }
  }

  std::vector<Stamp> Take() const {
    const uint32_t count = std::min<uint32_t>(skeleton_->bss->received, STAMPS_MAX);
    const size_t bytes = sizeof(stamps_sample) * STAMPS_MAX;
    void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, bpf_map__fd(skeleton_->maps.samples), 0);
    std::vector<Stamp> stamps;
    if (memory == MAP_FAILED) return stamps;
    const auto* samples = static_cast<const stamps_sample*>(memory);
    for (uint32_t i = 0; i < count; ++i) {
      if (samples[i].t1 != 0)
        stamps.push_back({static_cast<int64_t>(samples[i].t1), static_cast<int64_t>(samples[i].t2),
                          static_cast<int>(samples[i].path)});
    }
    munmap(memory, bytes);
    return stamps;
  }

 private:
  absl::Status AttachEgress() {
    LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = static_cast<int>(if_nametoindex("eth0")), .attach_point = BPF_TC_EGRESS);
    int error = bpf_tc_hook_create(&hook);
    if (error != 0 && error != -EEXIST) return absl::ErrnoToStatus(-error, "make clsact");
    LIBBPF_OPTS(bpf_tc_opts, options, .prog_fd = bpf_program__fd(skeleton_->progs.stamps_egress));
    error = bpf_tc_attach(&hook, &options);
    return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(-error, "attach to tc egress");
  }

  // A socket bound to a source port that kernel ECMP puts on this spine.
  absl::Status OpenSocket(const lab::Fabric& fabric, int from, int to, int spine) {
    for (uint16_t port = 49200; port < 49400; ++port) {
      absl::StatusOr<int> path = fabric.PathOf(from, to, port);
      if (!path.ok()) return path.status();
      if (*path == spine) return OpenSocketAt(fabric, from, to, port);
    }
    return absl::InternalError(absl::StrCat("no port in 200 goes over spine ", spine));
  }

  absl::Status OpenSocketAt(const lab::Fabric& fabric, int from, int to, uint16_t port) {
    return lab::RunInNetns(sender_ns_, [&] {
      const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      sockaddr_in local{.sin_family = AF_INET, .sin_port = htons(port)},
          remote{.sin_family = AF_INET, .sin_port = htons(STAMPS_PORT)};
      inet_pton(AF_INET, fabric.HostAddr(from).c_str(), &local.sin_addr);
      inet_pton(AF_INET, fabric.HostAddr(to).c_str(), &remote.sin_addr);
      const int no_checksum = 1;  // the program changes the payload
      if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &no_checksum, sizeof(no_checksum)) != 0 ||
          bind(fd, reinterpret_cast<sockaddr*>(&local), sizeof(local)) != 0 ||
          connect(fd, reinterpret_cast<sockaddr*>(&remote), sizeof(remote)) != 0) {
        const absl::Status status = absl::ErrnoToStatus(errno, "socket of a stamped packet");
        if (fd >= 0) close(fd);
        return status;
      }
      sockets_.push_back(fd);
      return absl::OkStatus();
    });
  }

  std::string sender_ns_, receiver_ns_;
  clock_stamps* skeleton_ = nullptr;
  std::vector<int> sockets_;
};

std::map<int64_t, double> LeastPerWindow(const std::vector<Stamp>& stamps, int64_t window_ns, int path) {
  std::map<int64_t, double> least;
  for (const Stamp& stamp : stamps) {
    if (path >= 0 && stamp.path != path) continue;
    auto [it, added] = least.try_emplace(stamp.sent_ns / window_ns, stamp.DelayNs());
    if (!added) it->second = std::min(it->second, stamp.DelayNs());
  }
  return least;
}

}  // namespace

std::vector<double> StampRun::FloorNs(absl::Duration window, int path) const {
  const int64_t window_ns = absl::ToInt64Nanoseconds(window);
  const std::map<int64_t, double> there = LeastPerWindow(forward, window_ns, path),
                                  back = LeastPerWindow(reverse, window_ns, path);
  std::vector<double> floors;
  if (there.size() < 3) return floors;
  for (auto it = std::next(there.begin()); it != std::prev(there.end());
       ++it) {  // the first and the last are not whole
    const auto other = back.find(it->first);
    if (other != back.end()) floors.push_back((it->second - other->second) / 2);
  }
  return floors;
}

absl::StatusOr<StampRun> MeasureStamps(const lab::Fabric& fabric, int host, int other, absl::Duration interval,
                                       absl::Duration length) {
  Direction forward, reverse;
  if (absl::Status status = forward.Open(fabric, host, other); !status.ok()) return status;
  if (absl::Status status = reverse.Open(fabric, other, host); !status.ok()) return status;
  const int64_t interval_ns = absl::ToInt64Nanoseconds(interval);
  const int64_t until_ns = lab::MonotonicNs() + absl::ToInt64Nanoseconds(length);
  std::thread there([&] { forward.Send(interval_ns, until_ns); });
  std::thread back([&] { reverse.Send(interval_ns, until_ns); });
  there.join();
  back.join();
  StampRun run{forward.Take(), reverse.Take()};
  const double expected = absl::ToDoubleSeconds(length) / absl::ToDoubleSeconds(interval) * fabric.spec().spines;
  for (const auto* stamps : {&run.forward, &run.reverse}) {
    if (static_cast<double>(stamps->size()) < expected / 2)
      return absl::InternalError(absl::StrCat("only ", stamps->size(), " of ", expected, " stamped packets arrived"));
  }
  return run;
}

}  // namespace cw::bench
