// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/responder.h"

#include <linux/bpf.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "maps/unique_fd.h"
#include "spdlog/spdlog.h"
#include "userspace/model/clock.h"
#include "userspace/probe/lateness.h"
#include "userspace/probe_verbs/device_clock.h"
#include "userspace/rights/rights.h"

namespace cw::probe_verbs {
namespace {

constexpr int kMaxEvents = 16;
constexpr int kClockPeriodMs = static_cast<int>(DeviceClock::kPeriodNs / 1'000'000);

class ResponderImpl final : public Responder {
 public:
  ResponderImpl(const ResponderOptions& options, const dataplane::ProgramRunner& runner,
                std::vector<UdEndpoint*> endpoints, const PeerBook* book)
      : options_(options),
        runner_(runner),
        endpoints_(std::move(endpoints)),
        book_(book),
        has_clocks_(std::any_of(endpoints_.begin(), endpoints_.end(), [](auto* e) { return e->has_clock(); })) {}
  ~ResponderImpl() override {
    stop_ = true;
    const uint64_t one = 1;
    if (wake_.ok()) (void)!write(wake_.get(), &one, sizeof(one));
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Launch();
  ResponderStats stats() override;

 private:
  void Run();
  void EnterRealTime();
  void RunOnEvents();
  void RunBusy();
  void KeepClocks();
  void Drain(UdEndpoint& endpoint);
  void OnDatagram(UdEndpoint& endpoint, const Received& received);
  bool Answer(UdEndpoint& endpoint, const Unpacked& reply);

  const ResponderOptions options_;
  const dataplane::ProgramRunner runner_;
  const std::vector<UdEndpoint*> endpoints_;
  const PeerBook* const book_;
  const bool has_clocks_;
  const MonotonicClock clock_;
  maps::UniqueFd epoll_, wake_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // of stats_ and turns_
  ResponderStats stats_;
  probe::Lateness turns_;
  uint32_t turn_ = 0;
  std::thread thread_;
};

absl::Status ResponderImpl::Launch() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.ok() || !wake_.ok()) return absl::ErrnoToStatus(errno, "descriptors of the verbs thread");
  const auto watch = [this](int fd, UdEndpoint* endpoint) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.ptr = endpoint;
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  bool watched = watch(wake_.get(), nullptr);
  for (UdEndpoint* endpoint : endpoints_) watched = watched && watch(endpoint->event_fd(), endpoint);
  if (!watched) return absl::ErrnoToStatus(errno, "watching the completion channels");
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& e) {
    return absl::ResourceExhaustedError(absl::StrCat("starting the verbs thread: ", e.what()));
  }
  return absl::OkStatus();
}

ResponderStats ResponderImpl::stats() {
  std::lock_guard hold(mutex_);
  ResponderStats s = stats_;
  s.turn_p50_ns = turns_.Quantile(0.5);
  s.turn_p99_ns = turns_.Quantile(0.99);
  clockid_t cpu_clock;
  timespec ts;
  if (pthread_getcpuclockid(thread_.native_handle(), &cpu_clock) == 0 && clock_gettime(cpu_clock, &ts) == 0) {
    s.cpu_ns = int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
  }
  return s;
}

// A thread that never waits must not have a priority that starves others.
void ResponderImpl::EnterRealTime() {
  pthread_setname_np(pthread_self(), "cw-verbs");
  if (options_.fifo_priority <= 0 || options_.busy) return;
  sched_param param{};
  param.sched_priority = options_.fifo_priority;
  const int error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
  if (error != 0)
    spdlog::warn("probes by verbs are answered with ordinary scheduling: SCHED_FIFO: {}", strerror(error));
}

void ResponderImpl::Run() {
  EnterRealTime();
  const absl::Status given_up = options_.keep_rights ? absl::OkStatus() : rights::KeepOnly(rights::kNone);
  if (!given_up.ok()) spdlog::warn("the thread that answers probes keeps its rights: {}", given_up.ToString());
  options_.busy ? RunBusy() : RunOnEvents();
}

void ResponderImpl::RunBusy() {
  while (!stop_.load(std::memory_order_relaxed)) {
    KeepClocks();
    for (UdEndpoint* endpoint : endpoints_) Drain(*endpoint);
  }
}

void ResponderImpl::RunOnEvents() {
  for (UdEndpoint* endpoint : endpoints_) {
    if (absl::Status s = endpoint->Arm(); !s.ok()) spdlog::error("{}", s.ToString());
    Drain(*endpoint);  // what came before it was armed
  }
  epoll_event events[kMaxEvents];
  while (!stop_) {
    KeepClocks();
    const int n = epoll_wait(epoll_.get(), events, kMaxEvents, has_clocks_ ? kClockPeriodMs : -1);
    for (int i = 0; i < n; ++i) {
      auto* endpoint = static_cast<UdEndpoint*>(events[i].data.ptr);
      if (endpoint == nullptr) continue;
      endpoint->TakeEvents();
      if (absl::Status s = endpoint->Arm(); !s.ok()) spdlog::error("{}", s.ToString());
      Drain(*endpoint);
    }
  }
}

void ResponderImpl::KeepClocks() {
  if (!has_clocks_) return;
  const int64_t now_ns = clock_.NowNs();
  for (UdEndpoint* endpoint : endpoints_) endpoint->KeepClock(now_ns);
}

void ResponderImpl::Drain(UdEndpoint& endpoint) {
  while (!stop_.load(std::memory_order_relaxed) &&
         endpoint.Poll([&](const Received& received) { OnDatagram(endpoint, received); }) > 0) {
  }
}

bool ResponderImpl::Answer(UdEndpoint& endpoint, const Unpacked& reply) {
  const std::optional<uint32_t> qpn = book_->Qpn({.local = endpoint.address(), .remote = reply.to});
  if (!qpn) return false;
  return endpoint
      .Send({.to = reply.to,
             .qpn = *qpn,
             .port = reply.port,
             .traffic_class = reply.traffic_class,
             .label = reply.label,
             .payload = reply.payload})
      .ok();
}

void ResponderImpl::OnDatagram(UdEndpoint& endpoint, const Received& received) {
  const int64_t begun_ns = clock_.NowNs();
  std::optional<Arrival> arrival = ReadGrh(received.grh, endpoint.address().is_v4());
  Frame frame;
  Turned turned;
  if (arrival && arrival->to == endpoint.address()) {
    arrival->ns = received.arrived_ns;
    turned = Turn(runner_, *arrival, endpoint.AnyPort(turn_++), received.payload, &frame);
  }
  const bool answered = turned.reply && Answer(endpoint, *turned.reply);
  const int64_t turn_ns = clock_.NowNs() - begun_ns;
  std::lock_guard hold(mutex_);
  ++stats_.received;
  if (!turned.accepted) ++stats_.malformed;
  if (!turned.reply) return;
  ++(answered ? stats_.answered : stats_.unanswered);
  if (answered) turns_.Add(turn_ns);
}

}  // namespace

Turned Turn(const dataplane::ProgramRunner& runner, const Arrival& arrival, uint16_t port,
            absl::Span<const uint8_t> payload, Frame* frame) {
  const std::optional<absl::Span<uint8_t>> packed = PackFrame(arrival, port, payload, frame);
  if (!packed) return {};
  const absl::StatusOr<int> verdict = runner.Ingress(*packed, arrival.ns);
  if (!verdict.ok() || *verdict == XDP_PASS) return {};  // passed: the program knows no such probe
  Turned turned{.accepted = true, .reply = std::nullopt};
  if (*verdict != XDP_TX) return turned;
  if (absl::StatusOr<Unpacked> reply = Unpack(PacketOf(*packed)); reply.ok()) turned.reply = *reply;
  return turned;
}

absl::StatusOr<std::unique_ptr<Responder>> Responder::Start(const ResponderOptions& options,
                                                            const dataplane::ProgramRunner& runner,
                                                            std::vector<UdEndpoint*> endpoints, const PeerBook* book) {
  auto responder = std::make_unique<ResponderImpl>(options, runner, std::move(endpoints), book);
  if (absl::Status s = responder->Launch(); !s.ok()) return s;
  return responder;
}

}  // namespace cw::probe_verbs
