// SPDX-License-Identifier: Apache-2.0
//
// POST of JSON over HTTP, with one connection that is kept. http and https only, no redirects; 2 s to connect, 5 s in
// all. Thread rule: each object on one thread; the first one that is made in a process before other threads use
// libcurl.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::fleet {

class HttpPost {
 public:
  // Stop: a request under way ends within a second of its being true. It outlives the object.
  HttpPost(std::string url, const std::atomic<bool>& stop);
  ~HttpPost();

  // InvalidArgument: the server will never take it (4xx). PermissionDenied: not as things are (401, 403, 404: a token
  // that is renewed, a path that is served again). Unavailable: it may later.
  absl::Status Send(const std::string& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// InvalidArgument: what is wrong with it, as the end of a sentence.
absl::Status CheckUrl(const std::string& url);
// Without user and password, for logs and labels.
std::string UrlForLog(const std::string& url);

}  // namespace cw::fleet
