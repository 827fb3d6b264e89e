// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/alerts/alerts.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/fleet/alerts/http_post.h"
#include "userspace/fleet/alerts/outbox.h"

namespace cw::fleet {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(1), kLongestPause = absl::Seconds(15);
constexpr absl::Duration kDeniedPatience = absl::Minutes(10);

}  // namespace

class Alerts::Receiver {
 public:
  Receiver(const std::string& url, std::unique_ptr<Outbox> outbox)
      : outbox_(std::move(outbox)), name_(UrlForLog(url)), http_(url, stop_), thread_([this] { Run(); }) {}

  ~Receiver() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      news_.notify_all();
    }
    thread_.join();
  }

  void Take(const std::vector<Finding>& findings, bool resumed) {
    const absl::Time now = absl::Now();
    const std::lock_guard lock(mutex_);
    for (const Finding& f : findings) {
      outbox_->Take(f, resumed, now);
      log_.Take(f, resumed, now);
    }
    news_.notify_all();
  }

  AlertCounts counts() {
    const std::lock_guard lock(mutex_);
    AlertCounts out = counts_;
    out.receiver = name_;
    out.no_room = outbox_->no_room();
    out.waiting = outbox_->waiting(absl::Now());
    out.fault = complaint_;
    return out;
  }

  std::vector<AlertDelivery> deliveries() {
    const std::lock_guard lock(mutex_);
    return log_.All();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    absl::Time not_before = absl::InfinitePast();
    while (!stop_) {
      const absl::Time now = absl::Now();
      const absl::Time at = std::max(not_before, outbox_->Due());
      if (at > now) {
        const absl::Duration wait = std::min(at - now, absl::Minutes(1));
        news_.wait_for(lock, absl::ToChronoNanoseconds(wait));
        continue;
      }
      const std::optional<Outbox::Post> post = outbox_->Next(now);
      if (!post) continue;
      lock.unlock();
      const absl::Status status = http_.Send(post->body);
      lock.lock();
      if (stop_) return;
      not_before = Settle(*post, status);
    }
  }

  // Until when nothing is sent.
  absl::Time Settle(const Outbox::Post& post, const absl::Status& status) {
    const absl::Time now = absl::Now();
    const bool refused =
        absl::IsInvalidArgument(status) || (absl::IsPermissionDenied(status) && now - post.since > kDeniedPatience);
    outbox_->Done(status.ok() || refused, now);
    log_.Answered(post.alerts, status, now);
    if (status.ok()) {
      counts_.sent += post.alerts.size();
      if (!complaint_.empty()) spdlog::info("alerts: {} takes them again", name_);
      complaint_.clear();
      pause_ = kFirstPause;
      return absl::InfinitePast();
    }
    ++counts_.failed;
    if (refused) counts_.refused += post.alerts.size();
    // Told once, until it works again.
    if (complaint_.empty()) {
      complaint_ = std::string(status.message());
      spdlog::warn("alerts: {} takes none: {}; {}", name_, complaint_,
                   refused ? "these are lost" : "they wait, and it is tried again every few seconds");
    }
    if (refused) return absl::InfinitePast();
    const absl::Duration pause = pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return now + pause;
  }

  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // of all below up to the thread
  std::condition_variable news_;
  const std::unique_ptr<Outbox> outbox_;
  DeliveryLog log_;
  const std::string name_;
  AlertCounts counts_;
  std::string complaint_;
  absl::Duration pause_ = kFirstPause;
  HttpPost http_;  // the thread's
  std::thread thread_;
};

Alerts::Alerts(const AlertTargets& targets, const AlertWords& words) {
  for (const std::string& url : targets.alertmanagers) {
    receivers_.push_back(std::make_unique<Receiver>(std::string(absl::StripSuffix(url, "/")) + "/api/v2/alerts",
                                                    std::make_unique<AlertmanagerOutbox>(words)));
  }
  for (const std::string& url : targets.webhooks)
    receivers_.push_back(std::make_unique<Receiver>(url, std::make_unique<WebhookOutbox>(words)));
}

Alerts::~Alerts() = default;

void Alerts::Take(const std::vector<Finding>& findings, bool resumed) {
  if (findings.empty()) return;
  for (const std::unique_ptr<Receiver>& receiver : receivers_) receiver->Take(findings, resumed);
}

std::vector<AlertCounts> Alerts::counts() const {
  std::vector<AlertCounts> all;
  for (const std::unique_ptr<Receiver>& receiver : receivers_) all.push_back(receiver->counts());
  return all;
}

std::vector<std::vector<AlertDelivery>> Alerts::deliveries() const {
  std::vector<std::vector<AlertDelivery>> all;
  for (const std::unique_ptr<Receiver>& receiver : receivers_) all.push_back(receiver->deliveries());
  return all;
}

}  // namespace cw::fleet
