// SPDX-License-Identifier: Apache-2.0
//
// Who changed what on this host: a file of one JSON object a line, which is only ever appended to. It outlives agents,
// and several programs may write it at once (the agent, cwctl off without one, cwfabric-off). Bounded: a full file
// becomes PATH.1, and the one before it goes. The standard library only, since cwfabric-off has nothing else.
#pragma once

#include <cstdint>
#include <string>

namespace cw::acts {

struct Act {
  std::string by;       // a user, or a certificate's name
  std::string role;     // "" = none was asked for
  std::string via;      // "uid 1003", or the certificate and the address that it came from
  std::string what;     // the API's call, or the program
  std::string request;  // its text
  std::string outcome;  // "allowed", "failed", "refused"
  std::string error;    // of the last two
};

// Of this process: by its login (which sudo does not change), or its user.
Act ByThisProcess(const std::string& what, const std::string& request);

// {"time": "2026-11-26T07:15:00.123456789Z", "by": …}, without a newline. What is not ASCII is escaped; of what is no
// UTF-8 each byte.
std::string LineOf(const Act& act, int64_t unix_ns);

class ActsFile {
 public:
  static constexpr uint64_t kMostBytes = 8 << 20;  // of the file; as much again of PATH.1

  // An absolute path; "": nothing is written.
  explicit ActsFile(const std::string& path, uint64_t most_bytes = kMostBytes);

  // Any thread and process. "" when it is written, else why not, with the path. The folder has to be there.
  // Links of other users are not followed. It takes a tenth of a second at most, on a disk that works. The kernel
  // writes it to the disk when it likes: a power cut may cost the last seconds.
  std::string Append(const Act& act, int64_t unix_ns) const;
  bool HasFolder() const;  // an agent was here
  // "" where nothing, or a file, is in its place: what else is there can take no line. Writes nothing.
  std::string NoFile() const;

 private:
  std::string path() const { return folder_ + "/" + name_; }

  const std::string folder_, name_;
  const uint64_t most_;
};

// Where the agent of an instance has it by default.
std::string DefaultPath(const std::string& instance);

}  // namespace cw::acts
