// SPDX-License-Identifier: Apache-2.0
//
// Network namespaces by path (/run/netns/NAME, the convention of ip-netns(8)). Threads: RunInNetns moves the calling
// thread only, and moves it back; the other functions may be called from any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::lab {

std::string NetnsPath(const std::string& name);  // /run/netns/NAME

absl::Status CreateNetns(const std::string& name);  // with lo up; AlreadyExists when the name is taken
absl::Status DeleteNetns(const std::string& name);  // Ok when there is none
std::vector<std::string> ListNetns();               // names, sorted

// Runs fn with the calling thread inside the namespace. Threads and processes that fn starts stay inside; sockets that
// fn opens keep to it. Returns fn's status, or NotFound when there is no such namespace (fn is not run then).
// The thread always comes back to its own namespace; were that to fail the process aborts, because going on in a wrong
// namespace would change somebody else's network.
absl::Status RunInNetns(const std::string& path, const std::function<absl::Status()>& fn);

// socket(2) inside the namespace; the caller closes the descriptor (it is close-on-exec).
absl::StatusOr<int> SocketInNetns(const std::string& path, int domain, int type, int protocol);

// Waits until all these devices of the calling thread's namespace carry packets. A device that comes up gets its
// carrier in the background, and until then it and the routes over it drop what they are given. DeadlineExceeded after
// 20 s.
absl::Status WaitUntilRunning(const std::vector<std::string>& devices);
// Whether a device of the calling thread's namespace is up administratively.
absl::StatusOr<bool> IsDeviceUp(const std::string& device);

// Writes VALUE to /proc/sys/KEY ('/' between the parts) of the namespace that the calling thread is in.
absl::Status WriteSysctl(const std::string& key, const std::string& value);

}  // namespace cw::lab
