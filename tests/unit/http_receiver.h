// SPDX-License-Identifier: Apache-2.0
//
// A server on the loopback that takes what is posted to it, answers as it is told, and keeps the bodies. And a plain
// request to one. Any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cw {

class HttpReceiver {
 public:
  explicit HttpReceiver(int port = 0);  // 0: any that is free
  ~HttpReceiver();
  int port() const { return port_; }
  std::string url() const;
  void Answer(int status, std::string text = "");  // 0: never
  std::vector<std::string> bodies() const;
  int requests() const { return requests_; }

 private:
  void Serve();
  void Talk(int connection);
  int listener_ = -1, port_ = 0;
  std::atomic<int> status_ = 200, requests_ = 0;
  std::atomic<bool> end_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::string text_;
  std::thread thread_;
};

// A port of 127.0.0.1 that nobody has at the moment.
int FreePort();
// The answer's body; "" where nobody answers.
std::string HttpGet(int port, const std::string& path);

}  // namespace cw
