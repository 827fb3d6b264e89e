// SPDX-License-Identifier: Apache-2.0
//
// Calls of many callers on a few threads of their own, callers in turn. A thread of gRPC's would wait until the client
// has read its reply: some ninety unread ones kept all others waiting. Here a reply that nobody reads takes memory
// alone, and counts against its caller until it was sent or the call ended.
// Thread rule: any thread. It outlives the server whose calls it runs.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace cw::api {

class CallQueue {
 public:
  struct Limits {
    size_t threads = 3;  // of which one caller has all but one
    size_t each = 32;    // calls of one caller that are not done
    size_t all = 1024;
  };
  CallQueue() : CallQueue(Limits{}) {}
  explicit CallQueue(const Limits& limits);
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // ResourceExhausted: so many of the caller's, or of all, are under way; `work` is not run then.
  absl::Status Add(const std::string& caller, std::function<void()> work);
  // The reply was sent, or nobody wants it any more.
  void Done(const std::string& caller);

 private:
  struct Its {
    std::deque<std::function<void()>> waiting;
    size_t running = 0, under_way = 0;
  };
  void Work();
  void EraseIfIdle(std::map<std::string, Its>::iterator its);
  bool Next(std::string& caller, std::function<void()>& work);

  const Limits limits_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::map<std::string, Its> callers_;
  std::deque<std::string> turns_;  // of those with work that waits, the next first
  size_t under_way_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

// Of one call: deletes itself when gRPC has done with it.
class QueuedReply final : public grpc::ServerUnaryReactor {
 public:
  // Runs `answer` on the queue. caller: whose calls are counted together.
  static grpc::ServerUnaryReactor* Queue(CallQueue& queue, grpc::CallbackServerContext* context,
                                         const std::string& caller, std::function<grpc::Status()> answer);
  static grpc::ServerUnaryReactor* Refuse(const absl::Status& why);

  void OnDone() override;

 private:
  QueuedReply(CallQueue* queue, std::string caller) : queue_(queue), caller_(std::move(caller)) {}

  CallQueue* const queue_;  // none: it is not counted
  const std::string caller_;
};

}  // namespace cw::api
