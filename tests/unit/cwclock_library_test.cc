// SPDX-License-Identifier: Apache-2.0
// The shared library as a file: what it exports, and that it runs on old systems.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <sstream>
#include <string>

namespace {

std::string OutputOf(const std::string& command) {
  std::string out;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "re"), pclose);
  std::array<char, 4096> part{};
  while (pipe && fgets(part.data(), part.size(), pipe.get()) != nullptr) out += part.data();
  return out;
}

TEST(CwClockLibrary, ExportsItsVersionedFunctionsAndNothingElse) {
  std::istringstream in(OutputOf("objdump -T " CWCLOCK_LIBRARY));
  std::set<std::string> exported;
  for (std::string line; std::getline(in, line);) {
    if (line.find("CWCLOCK_1.") == std::string::npos || line.find("*ABS*") != std::string::npos) continue;
    exported.insert(line.substr(line.rfind(' ') + 1));
  }
  EXPECT_EQ(exported, (std::set<std::string>{"cw_clock_close", "cw_clock_convert", "cw_clock_difference",
                                             "cw_clock_get_state", "cw_clock_now", "cw_clock_now_tai", "cw_clock_open",
                                             "cw_clock_read", "cw_clock_state_name", "cw_clock_strerror"}));
}

#ifdef CWCLOCK_PLAIN_BUILD  // sanitizers and gcov bring libraries of their own
TEST(CwClockLibrary, NeedsLibcOnlyAndAnOldOne) {
  const std::string headers = OutputOf("objdump -p " CWCLOCK_LIBRARY);
  EXPECT_NE(headers.find("libcwclock.so.1"), std::string::npos);
  std::istringstream in(headers);
  std::set<std::string> needed;
  for (std::string word; in >> word;) {
    if (word == "NEEDED") {
      in >> word;
      needed.insert(word);
    }
    int major = 0, minor = 0;
    if (std::sscanf(word.c_str(), "GLIBC_%d.%d", &major, &minor) == 2) {
      EXPECT_LE(major * 1000 + minor, 2017) << word << ": RHEL 7's has 2.17";
    }
  }
  EXPECT_EQ(needed, std::set<std::string>{"libc.so.6"});
}
#endif

}  // namespace
