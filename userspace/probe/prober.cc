// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/prober.h"

#include <linux/futex.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/model/clock.h"
#include "userspace/model/cpu_list.h"
#include "userspace/probe/allowance.h"
#include "userspace/probe/doubt.h"
#include "userspace/probe/lateness.h"
#include "userspace/probe/pair_store.h"
#include "userspace/probe/raw_socket.h"
#include "userspace/rights/rights.h"

namespace cw::probe {
namespace {

// After a restart: behind every round of the agent before, so that no reply to it can be taken for one of ours.
constexpr uint32_t kRoundGap = 2 * CW_ROUNDS;

// A pair as the thread knows it. Touched with the lock held.
struct PairState {
  ProbePlan plan;
  uint32_t round = 0;
  bool carries_data = false;
  bool look_ahead = false;  // its last round's answers are looked at before its next round
  DoubtMemory doubt;
  bool in_doubt = false;       // a verdict on a slot hangs on its next rounds
  int64_t hurry_until_ns = 0;  // its next rounds are waited for
};

uint32_t PlannedSlots(const ProbePlan& plan) {
  uint32_t mask = 0;
  for (const PlannedSlot& s : plan.slots) mask |= 1u << s.slot;
  return mask;
}

// A mutex with priority inheritance, because the agent may hold the lock when the real-time thread wakes, and what that
// one thread sleeps on: a plain futex, which costs a fifth less per wake-up than a condition with such a mutex.
class Monitor {
 public:
  Monitor() {
    pthread_mutexattr_t m;
    pthread_mutexattr_init(&m);
    pthread_mutexattr_setprotocol(&m, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&mutex_, &m);
    pthread_mutexattr_destroy(&m);
  }
  ~Monitor() { pthread_mutex_destroy(&mutex_); }
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }
  void Wake() {
    changes_.fetch_add(1);
    syscall(SYS_futex, &changes_, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
  }
  // With the lock held; gives it up while it sleeps. Until that time of CLOCK_MONOTONIC or a call of Wake, at the
  // latest.
  void WaitUntil(int64_t when_ns) {
    const uint32_t seen = changes_.load();
    const timespec ts{static_cast<time_t>(when_ns / 1'000'000'000), static_cast<long>(when_ns % 1'000'000'000)};
    unlock();
    syscall(SYS_futex, &changes_, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen, when_ns == INT64_MAX ? nullptr : &ts,
            nullptr, FUTEX_BITSET_MATCH_ANY);
    lock();
  }

 private:
  pthread_mutex_t mutex_;
  std::atomic<uint32_t> changes_{0};
  static_assert(sizeof(changes_) == sizeof(uint32_t) && decltype(changes_)::is_always_lock_free);
};

// Of any machine, where a cpu_set_t has room for 1024.
struct CpuMask {
  cpu_set_t bits[kMaxCpus / CPU_SETSIZE] = {};
};

// The messages of one tick for one socket and family.
struct Batch {
  std::vector<mmsghdr> messages;
  std::vector<iovec> parts;
  std::vector<Destination> to;

  void Clear() {
    parts.clear();
    to.clear();
  }
  void Add(absl::Span<const uint8_t> packet) {
    parts.push_back({const_cast<uint8_t*>(packet.data()), packet.size()});
    to.emplace_back(packet);
  }
  void Seal() {
    messages.assign(parts.size(), {});
    for (size_t i = 0; i < parts.size(); ++i) {
      messages[i].msg_hdr.msg_name = &to[i].v6;
      messages[i].msg_hdr.msg_namelen = to[i].len;
      messages[i].msg_hdr.msg_iov = &parts[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
  }
};

class ProberImpl final : public Prober {
 public:
  explicit ProberImpl(const ProberOptions& options)
      : options_(options), cadence_(options.cadence), allowance_(options.most_cpu) {}
  ~ProberImpl() override {
    monitor_.lock();
    stop_ = true;
    monitor_.Wake();
    monitor_.unlock();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Launch() {
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error& e) {
      return absl::ResourceExhaustedError(std::string("starting the prober's thread: ") + e.what());
    }
    return UseCpus();
  }

  void SetPlan(ProbePlan plan) override;
  void SetCadence(const CadenceOptions& options) override;
  void RemovePair(uint32_t pair) override;
  void SetActive(uint32_t pair, bool carries_data) override;
  void SetClock(uint32_t pair, ClockPace pace) override;
  void Hurry(uint32_t pair, int64_t for_ns) override;
  ProberStats stats() override;
  int64_t IntervalNs(uint32_t pair) override;
  uint32_t Round(uint32_t pair) override;

 private:
  absl::Status UseCpus();
  void Run();
  void EnterRealTime();
  void Look(int64_t now_ns);
  void LookAtOwnCpu(int64_t now_ns);
  void TellStretched();
  int64_t LongestIntervalNs() const;
  CadenceOptions Afforded() const;
  void Tick(int64_t now_ns);
  void OrderDue();
  void Prepare(PairState& p, int64_t now_ns);
  void JudgeDoubt(PairState& p, int64_t now_ns);
  void EndHurries(int64_t now_ns);
  void LookAtAnswers(int64_t now_ns);
  int64_t NextWakeNs() const;
  void Flush(Transport* socket, bool v6, Batch& batch);
  void PublishIntervals();

  ProberOptions options_;
  const MonotonicClock clock_;
  Monitor monitor_;
  std::thread thread_;
  bool stop_ = false;
  Cadence cadence_;
  CpuAllowance allowance_;
  std::map<uint32_t, PairState> pairs_;
  std::map<std::pair<Transport*, bool>, Batch> batches_;  // true: IPv6
  std::vector<uint32_t> due_;
  std::vector<std::pair<uint64_t, PairState*>> order_;  // of a tick: rank, pair
  ProberStats stats_;
  std::deque<std::pair<int64_t, uint32_t>> answers_;  // when to look at which pair's
  Lateness lateness_;
  int64_t next_look_ns_ = INT64_MIN;
  uint64_t seen_shared_ = 0;
  int64_t seen_longest_ns_ = 0;
};

void ProberImpl::SetPlan(ProbePlan plan) {
  std::lock_guard<Monitor> hold(monitor_);
  const uint32_t index = plan.pair;
  const int64_t now_ns = clock_.NowNs();
  auto [it, fresh] = pairs_.try_emplace(index);
  PairState& p = it->second;
  if (fresh) p.round = Load(plan.shared->cur_round) + kRoundGap;
  p.plan = std::move(plan);
  cadence_.SetPair(index, static_cast<uint32_t>(p.plan.slots.size()), now_ns);
  monitor_.Wake();
}

void ProberImpl::SetCadence(const CadenceOptions& options) {
  std::lock_guard<Monitor> hold(monitor_);
  options_.cadence = options;
  cadence_.SetOptions(Afforded(), clock_.NowNs());
  monitor_.Wake();
}

CadenceOptions ProberImpl::Afforded() const {
  CadenceOptions options = options_.cadence;
  options.budget_pps *= allowance_.factor();
  return options;
}

void ProberImpl::LookAtOwnCpu(int64_t now_ns) {
  if (!allowance_.Due(now_ns) || !allowance_.Look(now_ns, ThreadCpuNs())) return;
  cadence_.SetOptions(Afforded(), now_ns);
}

// Whatever made it longer: a smaller budget, more pairs with data, or one in doubt.
void ProberImpl::TellStretched() {
  if (!options_.stretched || cadence_.shared() == seen_shared_) return;
  seen_shared_ = cadence_.shared();
  const int64_t longest_ns = LongestIntervalNs();
  if (longest_ns > seen_longest_ns_) options_.stretched(longest_ns);
  seen_longest_ns_ = longest_ns;
}

// Of pairs that carry data; 0: none does.
int64_t ProberImpl::LongestIntervalNs() const {
  int64_t longest_ns = 0;
  for (const auto& [index, pair] : pairs_)
    if (pair.carries_data) longest_ns = std::max(longest_ns, cadence_.IntervalNs(index));
  return longest_ns;
}

void ProberImpl::RemovePair(uint32_t pair) {
  std::lock_guard<Monitor> hold(monitor_);
  if (pairs_.erase(pair) == 0) return;
  cadence_.SetActive(pair, false, clock_.NowNs());
  cadence_.SetDoubt(pair, false, clock_.NowNs());
  cadence_.SetClock(pair, ClockPace::kNone, clock_.NowNs());
  cadence_.SetPair(pair, 0, clock_.NowNs());
}

void ProberImpl::SetActive(uint32_t pair, bool carries_data) {
  std::lock_guard<Monitor> hold(monitor_);
  const auto it = pairs_.find(pair);
  if (it == pairs_.end() || it->second.carries_data == carries_data) return;
  it->second.carries_data = carries_data;
  seen_shared_ = 0;  // another pair may have the longest interval now
  JudgeDoubt(it->second, clock_.NowNs());
  monitor_.Wake();
}

void ProberImpl::SetClock(uint32_t pair, ClockPace pace) {
  std::lock_guard<Monitor> hold(monitor_);
  if (!pairs_.contains(pair)) return;
  cadence_.SetClock(pair, pace, clock_.NowNs());
  monitor_.Wake();
}

// Whole rounds: the kernel counts a slot that a round lacks as missed.
void ProberImpl::Hurry(uint32_t pair, int64_t for_ns) {
  std::lock_guard<Monitor> hold(monitor_);
  const auto it = pairs_.find(pair);
  if (it == pairs_.end() || cadence_.IntervalNs(pair) <= options_.cadence.active_interval_ns) return;
  if (std::any_of(pairs_.begin(), pairs_.end(), [](const auto& p) { return p.second.in_doubt; })) return;
  const int64_t now_ns = clock_.NowNs();
  it->second.hurry_until_ns = now_ns + for_ns;
  cadence_.SetDoubt(pair, true, now_ns);
  monitor_.Wake();
}

int64_t ProberImpl::IntervalNs(uint32_t pair) {
  std::lock_guard<Monitor> hold(monitor_);
  return pairs_.contains(pair) ? cadence_.IntervalNs(pair) : 0;
}

uint32_t ProberImpl::Round(uint32_t pair) {
  std::lock_guard<Monitor> hold(monitor_);
  const auto found = pairs_.find(pair);
  return found == pairs_.end() ? 0 : found->second.round;
}

ProberStats ProberImpl::stats() {
  std::lock_guard<Monitor> hold(monitor_);
  ProberStats s = stats_;
  s.skipped_rounds = cadence_.skipped_rounds();
  s.afforded_pps = Afforded().budget_pps;
  s.lateness_p50_ns = lateness_.Quantile(0.5);
  s.lateness_p99_ns = lateness_.Quantile(0.99);
  s.lateness_max_ns = lateness_.max_ns();
  lateness_.Reset();
  s.longest_interval_ns = LongestIntervalNs();
  clockid_t cpu_clock;
  timespec ts;
  if (pthread_getcpuclockid(thread_.native_handle(), &cpu_clock) == 0 && clock_gettime(cpu_clock, &ts) == 0) {
    s.cpu_ns = int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
  }
  return s;
}

absl::Status ProberImpl::UseCpus() {
  if (options_.cpus.empty()) return absl::OkStatus();
  CpuMask wanted;
  for (const int cpu : options_.cpus) CPU_SET_S(cpu, sizeof(wanted), &wanted.bits[0]);
  const std::string text = CpuListText(options_.cpus);
  // The kernel takes those that the cgroup allows, and refuses where that is none.
  if (pthread_setaffinity_np(thread_.native_handle(), sizeof(wanted), &wanted.bits[0]) != 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("probe.cpus is \"%s\", and this process may run on none of these: name some of its cgroup's "
                        "(cpuset.cpus.effective), or allow them in the unit (AllowedCPUs=)",
                        text));
  }
  CpuMask given;
  if (const int e = pthread_getaffinity_np(thread_.native_handle(), sizeof(given), &given.bits[0]); e != 0)
    return absl::ErrnoToStatus(e, "ask for the prober's CPUs");
  std::vector<int> used;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof(given), &given.bits[0])) used.push_back(cpu);
  }
  if (used != options_.cpus) {
    spdlog::warn("probe.cpus is \"{}\", of which the prober's cgroup allows {}", text, CpuListText(used));
  }
  std::lock_guard<Monitor> hold(monitor_);
  stats_.cpus = CpuListText(used);
  return absl::OkStatus();
}

void ProberImpl::EnterRealTime() {
  pthread_setname_np(pthread_self(), "cw-prober");
  prctl(PR_SET_TIMERSLACK, 1UL);
  if (options_.fifo_priority <= 0) return;
  sched_param param{};
  param.sched_priority = options_.fifo_priority;
  const int error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
  if (error != 0) {
    spdlog::warn("probes are sent with ordinary scheduling, so rounds may be late: SCHED_FIFO: {}", strerror(error));
  }
  std::lock_guard<Monitor> hold(monitor_);
  stats_.realtime = error == 0;
}

void ProberImpl::Run() {
  EnterRealTime();
  // It has its sockets, and nothing that it still does needs a right.
  const absl::Status given_up = options_.keep_rights ? absl::OkStatus() : rights::KeepOnly(rights::kNone);
  if (!given_up.ok()) spdlog::warn("the prober's thread keeps its capabilities: {}", std::string(given_up.message()));
  monitor_.lock();
  while (!stop_) {
    TellStretched();
    const int64_t wake_ns = NextWakeNs();
    const int64_t now_ns = clock_.NowNs();
    if (now_ns >= wake_ns || now_ns >= next_look_ns_) Look(now_ns);
    if (now_ns < wake_ns) {
      monitor_.WaitUntil(std::min(wake_ns, next_look_ns_));
      continue;  // something may have changed: look again
    }
    lateness_.Add(now_ns - wake_ns);
    Tick(now_ns);
    LookAtOwnCpu(now_ns);
  }
  monitor_.unlock();
}

void ProberImpl::Look(int64_t now_ns) {
  next_look_ns_ = options_.look ? now_ns + options_.look_interval_ns : INT64_MAX;
  if (options_.look) options_.look();
}

int64_t ProberImpl::NextWakeNs() const {
  const int64_t due_ns = cadence_.NextWakeNs();
  return answers_.empty() ? due_ns : std::min(due_ns, answers_.front().first);
}

// With many peers the next round is far away: a slot that missed this one shall not wait for it.
void ProberImpl::LookAtAnswers(int64_t now_ns) {
  for (; !answers_.empty() && answers_.front().first <= now_ns; answers_.pop_front()) {
    const auto it = pairs_.find(answers_.front().second);
    if (it == pairs_.end()) continue;
    it->second.look_ahead = false;
    JudgeDoubt(it->second, now_ns);
  }
}

void ProberImpl::Tick(int64_t now_ns) {
  LookAtAnswers(now_ns);
  cadence_.TakeDue(now_ns, &due_);
  for (auto& [where, batch] : batches_) batch.Clear();
  OrderDue();
  for (const auto& [rank, pair] : order_) Prepare(*pair, now_ns);
  for (auto it = batches_.begin(); it != batches_.end();) {
    if (it->second.parts.empty()) {
      it = batches_.erase(it);  // its socket may be gone with the last plan that held it
    } else {
      Flush(it->first.first, it->first.second, it->second);
      ++it;
    }
  }
  PublishIntervals();
  ++stats_.ticks;
}

// The first packet of a burst finds caches and processors asleep and is late by microseconds. A pair of many slots can
// spare it, as another slot's probe is its fastest of the round; a pair of one slot cannot, so these come last.
void ProberImpl::OrderDue() {
  order_.clear();
  for (const uint32_t index : due_) {
    const auto it = pairs_.find(index);
    if (it == pairs_.end()) continue;
    const uint64_t turn = static_cast<uint32_t>(index * 0x9e3779b1u + stats_.ticks * 0x85ebca6bu);
    order_.emplace_back(uint64_t{CW_MAX_SLOTS - it->second.plan.slots.size()} << 32 | turn, &it->second);
  }
  std::sort(order_.begin(), order_.end());
}

void ProberImpl::Prepare(PairState& p, int64_t now_ns) {
  if (p.plan.slots.empty() || p.plan.socket == nullptr) return;
  JudgeDoubt(p, now_ns);
  if (++p.round == 0) ++p.round;  // 0 means none in the maps
  // A longer interval is known before its first gap, a shorter one after it: the kernel takes a gap of 2.5 intervals
  // for a pause of the prober.
  const auto interval = static_cast<__u32>(std::min<int64_t>(cadence_.IntervalNs(p.plan.pair), UINT32_MAX));
  if (interval > Load(p.plan.shared->interval_ns)) Store(p.plan.shared->interval_ns, interval);
  Batch& batch = batches_[{p.plan.socket.get(), IsIp6(p.plan.slots[0].probe.bytes())}];
  // Let each slot take its turn to be first.
  const size_t n = p.plan.slots.size();
  for (size_t i = 0; i < n; ++i) {
    ProbeTemplate& t = p.plan.slots[(p.round + i) % n].probe;
    t.SetRound(p.round);
    batch.Add(t.bytes());
  }
  ++stats_.rounds;
  const int64_t look_after_ns = LookAfterNs(interval, options_.cadence.active_interval_ns);
  if (p.carries_data && !p.look_ahead && look_after_ns != 0) {
    p.look_ahead = true;
    answers_.emplace_back(now_ns + look_after_ns, p.plan.pair);
  }
}

void ProberImpl::PublishIntervals() {
  for (uint32_t index : due_) {
    const auto it = pairs_.find(index);
    if (it == pairs_.end()) continue;
    const auto interval = static_cast<__u32>(std::min<int64_t>(cadence_.IntervalNs(index), UINT32_MAX));
    if (Load(it->second.plan.shared->interval_ns) != interval) Store(it->second.plan.shared->interval_ns, interval);
  }
}

void ProberImpl::JudgeDoubt(PairState& p, int64_t now_ns) {
  const DoubtVerdict verdict = probe::JudgeDoubt(*p.plan.shared, PlannedSlots(p.plan), p.round, p.carries_data, now_ns,
                                                 options_.doubt_ns, p.doubt);
  if (!std::exchange(p.in_doubt, verdict.hurry) && p.in_doubt) EndHurries(now_ns);
  cadence_.SetActive(p.plan.pair, verdict.active, now_ns);
  cadence_.SetDoubt(p.plan.pair, p.in_doubt || now_ns < p.hurry_until_ns, now_ns);
}

// A slot is in doubt: its pair has the budget that hurried ones share with it.
void ProberImpl::EndHurries(int64_t now_ns) {
  for (auto& [index, pair] : pairs_) {
    if (std::exchange(pair.hurry_until_ns, 0) <= now_ns) continue;
    cadence_.SetDoubt(index, pair.in_doubt, now_ns);
  }
}

// A packet that is refused takes the pair's others with it (they have the same route), not other pairs'.
void ProberImpl::Flush(Transport* socket, bool v6, Batch& batch) {
  batch.Seal();
  size_t next = 0;
  while (next < batch.messages.size()) {
    const int n = socket->SendBatch(v6, &batch.messages[next], static_cast<unsigned>(batch.messages.size() - next));
    if (n > 0) {
      stats_.probes += static_cast<uint64_t>(n);
      next += static_cast<size_t>(n);
      continue;
    }
    if (n == -EINTR) continue;
    stats_.last_error = strerror(-n);
    const Destination refused = batch.to[next];
    while (next < batch.to.size() && batch.to[next] == refused) {
      ++stats_.send_errors;
      ++next;
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Prober>> Prober::Start(const ProberOptions& options) {
  auto prober = std::make_unique<ProberImpl>(options);
  if (absl::Status s = prober->Launch(); !s.ok()) return s;
  return prober;
}

}  // namespace cw::probe
