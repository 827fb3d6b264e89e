// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/call_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cw::api {

CallQueue::CallQueue(const Limits& limits) : limits_(limits) {
  for (size_t i = 0; i < limits_.threads; ++i) threads_.emplace_back([this] { Work(); });
}

CallQueue::~CallQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status CallQueue::Add(const std::string& caller, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  const auto found = callers_.find(caller);
  if (found != callers_.end() && found->second.under_way >= limits_.each) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "you have ", limits_.each, " calls under way, or replies that you did not read; wait for one of them"));
  }
  if (under_way_ >= limits_.all) {
    return absl::ResourceExhaustedError(absl::StrCat(under_way_, " calls are under way already; try again soon"));
  }
  ++under_way_;
  Its& its = callers_[caller];
  ++its.under_way;
  if (its.waiting.empty()) turns_.push_back(caller);
  its.waiting.push_back(std::move(work));
  changed_.notify_one();
  return absl::OkStatus();
}

void CallQueue::EraseIfIdle(std::map<std::string, Its>::iterator its) {
  if (its->second.under_way == 0 && its->second.running == 0) callers_.erase(its);
}

void CallQueue::Done(const std::string& caller) {
  const std::lock_guard lock(mutex_);
  --under_way_;
  const auto its = callers_.find(caller);
  --its->second.under_way;
  EraseIfIdle(its);
}

// The lock is held. One thread is left to others than who is busy already.
bool CallQueue::Next(std::string& caller, std::function<void()>& work) {
  const size_t most = std::max<size_t>(1, limits_.threads - 1);
  const auto turn = std::find_if(turns_.begin(), turns_.end(),
                                 [&](const std::string& each) { return callers_[each].running < most; });
  if (turn == turns_.end()) return false;
  caller = *turn;
  turns_.erase(turn);
  Its& its = callers_[caller];
  work = std::move(its.waiting.front());
  its.waiting.pop_front();
  ++its.running;
  if (!its.waiting.empty()) turns_.push_back(caller);
  return true;
}

void CallQueue::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    std::string caller;
    std::function<void()> work;
    changed_.wait(lock, [&] { return Next(caller, work) || ending_; });
    if (!work) return;
    lock.unlock();
    work();
    lock.lock();
    const auto its = callers_.find(caller);
    --its->second.running;
    EraseIfIdle(its);
    if (!turns_.empty()) changed_.notify_one();
  }
}

grpc::ServerUnaryReactor* QueuedReply::Queue(CallQueue& queue, grpc::CallbackServerContext* context,
                                             const std::string& caller, std::function<grpc::Status()> answer) {
  auto* reply = new QueuedReply(&queue, caller);
  const absl::Status added = queue.Add(caller, [reply, context, answer = std::move(answer)] {
    reply->Finish(context->IsCancelled() ? grpc::Status::CANCELLED : answer());
  });
  if (added.ok()) return reply;
  delete reply;
  return Refuse(added);
}

grpc::ServerUnaryReactor* QueuedReply::Refuse(const absl::Status& why) {
  auto* reply = new QueuedReply(nullptr, "");
  reply->Finish({static_cast<grpc::StatusCode>(why.code()), std::string(why.message())});
  return reply;
}

void QueuedReply::OnDone() {
  if (queue_ != nullptr) queue_->Done(caller_);
  delete this;
}

}  // namespace cw::api
