// SPDX-License-Identifier: Apache-2.0
// Any messages over the socket of programs that own queue pairs: none ends the server or makes it keep more than its
// quota, and what was registered is forgotten when its connection closes.
// Input: messages one after the other, each a byte of length / 4 and a byte for its type; the rest of the head is right
// in most, so that bodies are reached.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "userspace/rdma/inproc_server.h"

namespace {

using cw::rdma::InprocServer;

constexpr size_t kMostQps = 8;

void Require(bool holds) {
  if (!holds) abort();
}

class Harness {
 public:
  Harness() {
    Require(mkdtemp(folder_) != nullptr);
    path_ = std::string(folder_) + "/s";
    InprocServer::Handler handler;
    handler.registered = [this](const cw::rdma::QpInfo& qp) { known_.insert({qp.laddr.ToString(), qp.lqpn}); };
    handler.unregistered = [this](const cw::rdma::QpInfo& qp) { known_.erase({qp.laddr.ToString(), qp.lqpn}); };
    handler.place = [](const cw::rdma::QpInfo&, const cw::rdma::Requester&) { return cw::rdma::Placement{}; };
    handler.profiler = [](const InprocServer::Peer&, absl::Span<const uint8_t>) {};
    handler.closed = [](const InprocServer::Peer&) {};
    handler.moved = [](const cw::rdma::QpInfo&, const cw::rdma::MoveResult&) {};
    cw::rdma::QuotaLimits limits;
    limits.max_qps = kMostQps;
    limits.messages_per_second = 1e9;
    auto server = InprocServer::Listen(path_, handler, limits);
    Require(server.ok());
    server_ = *std::move(server);
  }
  ~Harness() {
    server_.reset();
    unlink(path_.c_str());
    rmdir(folder_);
  }

  void Run(const uint8_t* data, size_t size) {
    const int client = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    Require(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    while (size > 2) {
      const size_t length = std::min<size_t>(size - 2, size_t{data[0]} * 4);
      Send(client, data[1], data + 2, length);
      data += 2 + length;
      size -= 2 + length;
    }
    server_->Poll();
    Require(known_.size() <= kMostQps);
    close(client);
    server_->Poll();
    Require(known_.empty());
  }

 private:
  void Send(int client, uint8_t type, const uint8_t* data, size_t length) {
    uint8_t message[4 * 255];
    std::copy(data, data + length, message);
    if (type < 0xf0 && length >= sizeof(cw_inproc_head)) {
      const cw_inproc_head head = {CW_INPROC_MAGIC, CW_INPROC_VERSION, static_cast<uint16_t>(type % 40)};
      std::memcpy(message, &head, sizeof(head));
    }
    (void)send(client, message, length, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  char folder_[32] = "/tmp/fuzz_inproc.XXXXXX";
  std::string path_;
  std::set<std::pair<std::string, uint32_t>> known_;
  std::unique_ptr<InprocServer> server_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Harness harness;
  harness.Run(data, size);
  return 0;
}
