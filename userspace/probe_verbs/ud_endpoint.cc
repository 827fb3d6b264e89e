// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/ud_endpoint.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "userspace/probe_verbs/address_handles.h"
#include "userspace/probe_verbs/packing.h"
#include "userspace/probe_verbs/receive_queue.h"
#include "userspace/probe_verbs/soft_roce.h"
#include "userspace/probe_verbs/verbs_handles.h"
#include "userspace/rdma/placement.h"

namespace cw::probe_verbs {
namespace {

constexpr uint32_t kReceives = 1024;
constexpr uint32_t kSends = 512;        // buffers, and work requests of one queue pair
constexpr uint32_t kSendsPerPort = 64;  // work requests, where each port has a queue pair of its own
constexpr size_t kPollBatch = 64;
constexpr size_t kSendStride = 1280;
constexpr size_t kReceiveStride = 1344;
static_assert(kSendStride >= kMaxPayload && kReceiveStride >= kGrhLen + kMaxPayload);

absl::Status Failed(int error, const char* call, const std::string& device) {
  return absl::ErrnoToStatus(error, absl::StrFormat("%s on %s", call, device));
}

class Endpoint final : public UdEndpoint {
 public:
  Endpoint(const EndpointOptions& options, DevicePort device) : options_(options), device_(std::move(device)) {}
  ~Endpoint() override { queue_pairs_.clear(); }  // before what they use

  absl::Status Build();

  const Addr& address() const override { return options_.address; }
  const std::string& device() const override { return device_.device; }
  uint32_t qpn() const override { return queue_pairs_.front()->qp_num; }
  size_t max_payload() const override { return std::min<size_t>(kMaxPayload, device_.mtu); }
  absl::Span<const uint16_t> ports() const override { return ports_; }
  uint16_t AnyPort(uint32_t turn) const override;

  bool CanSend(const Datagram& datagram) override;
  absl::Status Send(const Datagram& datagram) override;

  int event_fd() const override { return channel_->fd; }
  absl::Status Arm() override;
  void TakeEvents() override;
  int Poll(absl::FunctionRef<void(const Received&)> each) override;
  bool has_clock() const override { return receives_->has_clock(); }
  void KeepClock(int64_t now_ns) override { receives_->KeepClock(now_ns); }
  ArrivalStamps stamps() const override { return receives_->stamps(); }

 private:
  absl::Status MakeQueues();
  absl::Status AddQueuePair(uint32_t receives);
  absl::Status Bring(ibv_qp* qp);
  absl::Status PostReceive(uint64_t slot);
  HandleKey KeyOf(const Datagram& datagram) const;
  ibv_qp* QueuePairOf(uint16_t port) const;
  void ReapSends();

  const EndpointOptions options_;
  DevicePort device_;
  PdHandle pd_;
  ChannelHandle channel_;
  std::unique_ptr<ReceiveQueue> receives_;
  CqHandle send_cq_;
  std::vector<uint8_t> receive_bytes_, send_bytes_;
  MrHandle receive_mr_, send_mr_;
  std::unique_ptr<AddressHandles> handles_;
  std::vector<QpHandle> queue_pairs_;  // the first receives
  std::vector<uint16_t> ports_;
  std::map<uint16_t, ibv_qp*> by_port_;

  std::mutex send_mutex_;
  std::vector<uint32_t> free_;  // send buffers
  uint32_t under_way_ = 0;
};

absl::Status Endpoint::MakeQueues() {
  pd_.reset(ibv_alloc_pd(device_.context.get()));
  if (pd_ == nullptr) return Failed(errno, "ibv_alloc_pd", device());
  channel_.reset(ibv_create_comp_channel(device_.context.get()));
  if (channel_ == nullptr) return Failed(errno, "ibv_create_comp_channel", device());
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) return Failed(errno, "fcntl", device());
  auto receives = ReceiveQueue::Make(device_.context.get(), device(), kReceives, channel_.get());
  if (!receives.ok()) return receives.status();
  receives_ = *std::move(receives);
  send_cq_.reset(ibv_create_cq(device_.context.get(), kSends, nullptr, nullptr, 0));
  if (send_cq_ == nullptr) return Failed(errno, "ibv_create_cq", device());
  receive_bytes_.resize(kReceives * kReceiveStride);
  send_bytes_.resize(kSends * kSendStride);
  receive_mr_.reset(ibv_reg_mr(pd_.get(), receive_bytes_.data(), receive_bytes_.size(), IBV_ACCESS_LOCAL_WRITE));
  send_mr_.reset(ibv_reg_mr(pd_.get(), send_bytes_.data(), send_bytes_.size(), 0));
  if (receive_mr_ == nullptr || send_mr_ == nullptr) {
    return Failed(errno, "ibv_reg_mr (is the limit of locked memory, ulimit -l, large enough?)", device());
  }
  return absl::OkStatus();
}

absl::Status Endpoint::Bring(ibv_qp* qp) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = device_.port;
  attr.qkey = CW_UD_QKEY;
  int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  attr.qp_state = IBV_QPS_RTR;
  if (error == 0) error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = 0;
  if (error == 0) error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
  return error == 0 ? absl::OkStatus() : Failed(error, "ibv_modify_qp of a UD queue pair", device());
}

absl::Status Endpoint::AddQueuePair(uint32_t receives) {
  ibv_qp_init_attr init = {};
  init.send_cq = send_cq_.get();
  init.recv_cq = receives_->cq();
  init.qp_type = IBV_QPT_UD;
  init.cap.max_send_wr = device_.soft_roce ? kSendsPerPort : kSends;
  init.cap.max_recv_wr = receives;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  QpHandle qp(ibv_create_qp(pd_.get(), &init));
  if (qp == nullptr) return Failed(errno, "ibv_create_qp of a UD queue pair", device());
  if (absl::Status s = Bring(qp.get()); !s.ok()) return s;
  if (device_.soft_roce && by_port_.emplace(SoftRocePort(qp->qp_num), qp.get()).second) {
    ports_.push_back(SoftRocePort(qp->qp_num));
  }
  queue_pairs_.push_back(std::move(qp));
  return absl::OkStatus();
}

absl::Status Endpoint::Build() {
  if (absl::Status s = MakeQueues(); !s.ok()) return s;
  handles_ = std::make_unique<AddressHandles>(pd_.get(), device_.port, device_.gid_index);
  const uint32_t wanted = device_.soft_roce ? std::max(options_.soft_roce_ports, 1u) : 1;
  for (uint32_t i = 0; i < wanted; ++i) {
    if (absl::Status s = AddQueuePair(i == 0 ? kReceives : 1); !s.ok()) return s;
  }
  for (uint32_t slot = 0; slot < kReceives; ++slot) {
    if (absl::Status s = PostReceive(slot); !s.ok()) return s;
  }
  for (uint32_t slot = 0; slot < kSends; ++slot) free_.push_back(slot);
  return absl::OkStatus();
}

uint16_t Endpoint::AnyPort(uint32_t turn) const {
  if (!ports_.empty()) return ports_[turn % ports_.size()];
  return static_cast<uint16_t>(kFirstRocePort + (turn & 0x3fff));
}

HandleKey Endpoint::KeyOf(const Datagram& datagram) const {
  const uint32_t label = device_.soft_roce ? 0 : rdma::LabelOfPort(datagram.port).value_or(0);
  return {.to = datagram.to, .label = label, .traffic_class = datagram.traffic_class};
}

ibv_qp* Endpoint::QueuePairOf(uint16_t port) const {
  if (!device_.soft_roce) return port >= kFirstRocePort ? queue_pairs_.front().get() : nullptr;
  const auto it = by_port_.find(port);
  return it == by_port_.end() ? nullptr : it->second;
}

// With send_mutex_ held.
void Endpoint::ReapSends() {
  std::array<ibv_wc, 32> done;
  for (;;) {
    const int n = ibv_poll_cq(send_cq_.get(), static_cast<int>(done.size()), done.data());
    for (int i = 0; i < n; ++i) free_.push_back(static_cast<uint32_t>(done[static_cast<size_t>(i)].wr_id));
    under_way_ -= static_cast<uint32_t>(std::max(n, 0));
    if (n < static_cast<int>(done.size())) break;
  }
  if (under_way_ == 0) handles_->Recycle();
}

bool Endpoint::CanSend(const Datagram& datagram) {
  std::lock_guard hold(send_mutex_);
  if (free_.size() < kSends / 2) ReapSends();
  return !free_.empty() && handles_->Find(KeyOf(datagram)) != nullptr;
}

absl::Status Endpoint::Send(const Datagram& datagram) {
  ibv_qp* qp = QueuePairOf(datagram.port);
  if (qp == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat("%s cannot send with UDP port %d", device(), datagram.port));
  }
  if (datagram.payload.size() > max_payload()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d bytes do not fit into the RoCE MTU of %s, %d; raise the MTU of the device and of the fabric",
        datagram.payload.size(), device(), device_.mtu));
  }
  std::lock_guard hold(send_mutex_);
  ReapSends();
  ibv_ah* handle = handles_->Find(KeyOf(datagram));
  if (handle == nullptr) return absl::UnavailableError("the neighbour's address is being asked for");
  if (free_.empty()) return absl::UnavailableError("the send queue is full");
  const uint32_t slot = free_.back();
  uint8_t* bytes = send_bytes_.data() + slot * kSendStride;
  std::copy(datagram.payload.begin(), datagram.payload.end(), bytes);
  ibv_sge part = {.addr = reinterpret_cast<uint64_t>(bytes),
                  .length = static_cast<uint32_t>(datagram.payload.size()),
                  .lkey = send_mr_->lkey};
  ibv_send_wr request = {};
  request.wr_id = slot;
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud.ah = handle;
  request.wr.ud.remote_qpn = datagram.qpn;
  request.wr.ud.remote_qkey = CW_UD_QKEY;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp, &request, &bad);
  if (error == ENOMEM || error == EAGAIN) return absl::UnavailableError("the send queue is full");
  if (error != 0) return Failed(error, "ibv_post_send", device());
  free_.pop_back();
  ++under_way_;
  return absl::OkStatus();
}

absl::Status Endpoint::PostReceive(uint64_t slot) {
  ibv_sge part = {.addr = reinterpret_cast<uint64_t>(receive_bytes_.data() + slot * kReceiveStride),
                  .length = static_cast<uint32_t>(kReceiveStride),
                  .lkey = receive_mr_->lkey};
  ibv_recv_wr request = {};
  request.wr_id = slot;
  request.sg_list = &part;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(queue_pairs_.front().get(), &request, &bad);
  return error == 0 ? absl::OkStatus() : Failed(error, "ibv_post_recv", device());
}

absl::Status Endpoint::Arm() {
  const int error = ibv_req_notify_cq(receives_->cq(), 0);
  return error == 0 ? absl::OkStatus() : Failed(error, "ibv_req_notify_cq", device());
}

void Endpoint::TakeEvents() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  unsigned events = 0;
  while (ibv_get_cq_event(channel_.get(), &cq, &context) == 0) ++events;
  if (events > 0) ibv_ack_cq_events(receives_->cq(), events);
}

int Endpoint::Poll(absl::FunctionRef<void(const Received&)> each) {
  std::array<Completion, kPollBatch> arrived;
  const size_t n = receives_->Poll(absl::MakeSpan(arrived));
  for (const Completion& done : absl::MakeConstSpan(arrived).first(n)) {
    const uint8_t* bytes = receive_bytes_.data() + done.id * kReceiveStride;
    if (done.success && done.bytes >= kGrhLen) {
      each({.grh = {bytes, kGrhLen},
            .payload = {bytes + kGrhLen, done.bytes - kGrhLen},
            .qpn = done.from_qpn,
            .arrived_ns = done.arrived_ns});
    }
    (void)PostReceive(done.id);  // refused only while the queue pair is being taken down
  }
  return static_cast<int>(n);
}

}  // namespace

bool UdEndpoint::IsThere(const EndpointOptions& options) {
  return OpenDeviceOf(options.ifindex, options.netdev, options.address).ok();
}

absl::StatusOr<std::unique_ptr<UdEndpoint>> UdEndpoint::Open(const EndpointOptions& options) {
  absl::StatusOr<DevicePort> device = OpenDeviceOf(options.ifindex, options.netdev, options.address);
  if (!device.ok()) return device.status();
  auto endpoint = std::make_unique<Endpoint>(options, *std::move(device));
  if (absl::Status s = endpoint->Build(); !s.ok()) return s;
  return endpoint;
}

}  // namespace cw::probe_verbs
