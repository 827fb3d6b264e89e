// SPDX-License-Identifier: Apache-2.0
//
// HTTP over a unix socket in a few lines, for tests that ask as curl --unix-socket does.
#pragma once

#include <string>

namespace cw::http {

int ConnectUnix(const std::string& path);              // a descriptor, −1 when nobody listens
std::string Talk(int fd, const std::string& request);  // sends, reads to the end (at most 30 s), closes
std::string Ask(const std::string& path, const std::string& line, const std::string& headers = "");
std::string Body(const std::string& answer);

}  // namespace cw::http
