// SPDX-License-Identifier: Apache-2.0
// What any user can do: a FUSE file system in a user namespace, whose server answers what leads to an open file, the
// first FLUSH, and nothing after that. Who closes such a file waits until the server is gone.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace cw {

class FuseThatNeverAnswers {
 public:
  // `with`: in a process that has the file open; it may send it somewhere, and ends. Both ends of that process's close
  // are over when Start returns. "": it runs; else why not.
  std::string Start(const std::string& folder, const std::function<bool(int fd)>& with);
  // Ends the server: whoever waits for it goes on.
  void End();
  ~FuseThatNeverAnswers() { End(); }

 private:
  pid_t server_ = -1;
};

}  // namespace cw
