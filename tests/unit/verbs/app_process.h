// SPDX-License-Identifier: Apache-2.0
// A test application that says "ready" when it has what it needs, and ends when its standard input is closed.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace cw {

class AppProcess {
 public:
  ~AppProcess() {
    if (running()) End();
  }
  // command: a shell's. Fails the test unless it gets ready.
  void Start(const std::string& command) {
    int in[2];
    ASSERT_EQ(pipe2(in, O_CLOEXEC), 0);
    const int saved = dup(STDIN_FILENO);
    dup2(in[0], STDIN_FILENO);
    output_ = popen(command.c_str(), "r");
    dup2(saved, STDIN_FILENO);
    close(saved);
    close(in[0]);
    input_ = in[1];
    ASSERT_NE(output_, nullptr);
    char line[64] = "";
    ASSERT_NE(fgets(line, sizeof(line), output_), nullptr);
    ASSERT_STREQ(line, "ready\n");
  }
  bool running() const { return output_ != nullptr; }
  void Type(const char* text) { ASSERT_EQ(write(input_, text, strlen(text)), static_cast<ssize_t>(strlen(text))); }
  // Its exit status, 128 + N if signal N ended it.
  int End() {
    close(input_);
    const int status = pclose(std::exchange(output_, nullptr));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  FILE* output_ = nullptr;
  int input_ = -1;
};

}  // namespace cw
