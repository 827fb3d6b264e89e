// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/verbs_moves.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/unit/verbs/fake_mlx5.h"
#include "userspace/lab/monotonic.h"
#include "userspace/rdma/inproc_server.h"
#include "userspace/rdma/placement.h"

namespace cw::bench {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(60);

// The agent's end, in a folder of its own.
class Mover {
 public:
  Mover() {
    char folder[] = "/tmp/cw_moves_XXXXXX";
    folder_ = mkdtemp(folder);
    const int fd = open(LogPath().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, sizeof(fake_mlx5_log)) == 0) {
      void* at = mmap(nullptr, sizeof(fake_mlx5_log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (at != MAP_FAILED) log_ = static_cast<fake_mlx5_log*>(at);
    }
    if (fd >= 0) close(fd);
  }
  ~Mover() {
    if (input_ != nullptr) pclose(input_);  // its standard input ends, and so does it
    server_.reset();
    if (log_ != nullptr) munmap(log_, sizeof(*log_));
    unlink(LogPath().c_str());
    rmdir(folder_.c_str());
  }

  absl::Status Start(int queue_pairs) {
    if (log_ == nullptr) return absl::InternalError("no shared file in " + folder_);
    const std::string socket = folder_ + "/inproc.sock";
    auto server = rdma::InprocServer::Listen(
        socket, {.registered = [this](const rdma::QpInfo& qp) { qps_[qp.lqpn] = qp; },
                 .unregistered = [](const rdma::QpInfo&) {},
                 .place = [](const rdma::QpInfo&, const rdma::Requester&) { return rdma::Placement{}; },
                 .moved =
                     [this](const rdma::QpInfo&, const rdma::MoveResult& result) {
                       ++answers_;
                       refused_ += result.error != 0;
                     }});
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    input_ =
        popen(absl::StrCat("timeout 300 env FAKE_PROVIDER=" CW_FAKE_MLX5 " FAKE_MLX5_US=200 FAKE_MLX5_LOG=", LogPath(),
                           " LD_LIBRARY_PATH=" CW_FAKE_DIR " LD_PRELOAD=" CW_VERBS_LIB
                           " CWVERBS_DEADLINE_MS=1000 CWFABRIC_INPROC_SOCKET=",
                           socket, " " CW_VERBS_APP " stay ", queue_pairs, " > /dev/null")
                  .c_str(),
              "w");
    if (input_ == nullptr) return absl::InternalError("no process");
    absl::Status status =
        Await([&] { return Ready() == queue_pairs; }, "not all queue pairs said that they can be moved");
    // They say so when they are connected, and can be a moment later, when they may send.
    for (int tries = 0; status.ok() && tries < 100; ++tries) {
      MoveTimes warm_up;
      status = Round(-1 - tries, &warm_up);
      if (status.ok()) break;
      if (absl::IsFailedPrecondition(status) && tries < 99) status = absl::OkStatus();
      absl::SleepFor(absl::Milliseconds(10));
    }
    return status;
  }

  absl::Status Round(int round, MoveTimes* times) {
    std::vector<rdma::MoveOrder> orders;
    for (const auto& [lqpn, qp] : qps_) {
      orders.push_back(
          {.laddr = qp.laddr,
           .lqpn = lqpn,
           .pid = qp.pid,
           .request = static_cast<uint32_t>(orders.size() + 1),
           .udp_sport = static_cast<uint16_t>(50000 + (lqpn + static_cast<uint32_t>(round + 1000)) % 8192)});
    }
    answers_ = refused_ = 0;
    const uint64_t changes = log_->changes, spent_ns = log_->spent_ns;
    const int64_t start_ns = lab::MonotonicNs();
    if (!server_->Move(orders).empty()) return absl::InternalError("orders could not be sent");
    if (absl::Status status = Await([&] { return answers_ == orders.size(); }, "not all were answered"); !status.ok())
      return status;
    if (refused_ > 0) return absl::FailedPreconditionError(absl::StrCat(refused_, " moves were refused"));
    times->answered_ms.push_back(static_cast<double>(lab::MonotonicNs() - start_ns) / 1e6);
    times->recovery_ms.push_back(static_cast<double>(log_->last_ns - start_ns) / 1e6);
    times->change_us.push_back(static_cast<double>(log_->spent_ns - spent_ns) / 1e3 /
                               static_cast<double>(log_->changes - changes));
    return absl::OkStatus();
  }

 private:
  std::string LogPath() const { return folder_ + "/mlx5"; }
  int Ready() const {
    int ready = 0;
    for (const auto& [lqpn, qp] : qps_) ready += qp.owner && (qp.owner->can & CW_INPROC_CAN_MOVE_PORT) != 0;
    return ready;
  }
  absl::Status Await(const std::function<bool()>& condition, const char* otherwise) {
    for (const absl::Time end = absl::Now() + kLimit; !condition();) {
      if (absl::Now() > end) return absl::DeadlineExceededError(otherwise);
      pollfd wait{.fd = server_->fd(), .events = POLLIN};
      poll(&wait, 1, 100);
      server_->Poll();
    }
    return absl::OkStatus();
  }

  std::string folder_;
  fake_mlx5_log* log_ = nullptr;
  FILE* input_ = nullptr;
  std::unique_ptr<rdma::InprocServer> server_;
  std::map<uint32_t, rdma::QpInfo> qps_;
  size_t answers_ = 0, refused_ = 0;
};

}  // namespace

absl::StatusOr<MoveTimes> MoveRounds(int queue_pairs, int rounds) {
  Mover mover;
  if (absl::Status status = mover.Start(queue_pairs); !status.ok()) return status;
  MoveTimes times;
  for (int round = 0; round < rounds; ++round) {
    if (absl::Status status = mover.Round(round, &times); !status.ok()) return status;
  }
  return times;
}

}  // namespace cw::bench
