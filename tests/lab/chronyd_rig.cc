// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/chronyd_rig.h"

#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_format.h"

namespace cw::lab {
namespace {

constexpr char kChronyd[] = "/usr/sbin/chronyd";

std::string OutputOf(const std::string& command) {
  std::string out;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "re"), pclose);
  std::array<char, 4096> part{};
  while (pipe && fgets(part.data(), part.size(), pipe.get()) != nullptr) out += part.data();
  return out;
}

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream in(line.substr(0, line.find('\n')));
  for (std::string field; std::getline(in, field, ',');) out.push_back(field);
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChronydRig>> ChronydRig::Create() {
  if (!std::filesystem::exists(kChronyd)) {
    return absl::NotFoundError("there is no chronyd; install the package chrony (packaging/deps/test.txt)");
  }
  std::unique_ptr<ChronydRig> rig(new ChronydRig);
  std::string name = "/tmp/cwchrony-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) return absl::ErrnoToStatus(errno, "a folder for chronyd");
  rig->folder_ = name;
  rig->run_ = name + "/run";
  const passwd* user = getpwnam("_chrony");
  rig->user_ = user != nullptr ? "_chrony" : "root";
  // chronyd wants a folder that is its own, and of nobody else, for its command socket.
  const bool made = chmod(name.c_str(), 0711) == 0 && mkdir(rig->run_.c_str(), 0700) == 0 &&
                    (user == nullptr || chown(rig->run_.c_str(), user->pw_uid, user->pw_gid) == 0);
  if (!made) return absl::ErrnoToStatus(errno, "chronyd's folder");
  return rig;
}

ChronydRig::~ChronydRig() {
  if (process_ > 0) {
    kill(process_, SIGTERM);
    waitpid(process_, nullptr, 0);  // timeout(1) sees to it that this ends
  }
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

absl::Status ChronydRig::Start(const std::string& refclock) {
  const std::string config = folder_ + "/chrony.conf", log = folder_ + "/log";
  std::ofstream(config) << "refclock " << refclock << " refid CWFB poll 0 filter 4\n"
                        << "bindcmdaddress " << run_ << "/chronyd.sock\n"
                        << "pidfile " << run_ << "/chronyd.pid\n"
                        << "user " << user_ << "\nport 0\ncmdport 0\n";
  process_ = fork();
  if (process_ < 0) return absl::ErrnoToStatus(errno, "starting chronyd");
  if (process_ == 0) {
    const bool quiet = std::freopen(log.c_str(), "w", stdout) != nullptr && dup2(fileno(stdout), fileno(stderr)) >= 0;
    // Ends also when this test is killed: it passes SIGTERM on, and is a limit of its own.
    if (quiet) execlp("timeout", "timeout", "-k", "2", "100", kChronyd, "-x", "-d", "-f", config.c_str(), nullptr);
    _exit(127);
  }
  return absl::OkStatus();
}

std::string ChronydRig::Chronyc(const std::string& command) const {
  return OutputOf(absl::StrFormat("chronyc -h %s/chronyd.sock -c %s 2>&1", run_, command));
}

bool ChronydRig::Follows(double offset_s, double tolerance_s, std::string* what) const {
  const std::string sources = Chronyc("sources"), tracking = Chronyc("tracking");
  *what = sources + tracking;
  const std::vector<std::string> source = Fields(sources), now = Fields(tracking);
  const bool selected = source.size() > 2 && source[0] == "#" && source[1] == "*" && source[2] == "CWFB";
  // "System time" of `chronyc tracking`: what chronyd would correct.
  return selected && now.size() > 4 && std::abs(std::strtod(now[4].c_str(), nullptr) - offset_s) < tolerance_s;
}

std::string ChronydRig::Log() const {
  std::ifstream log(folder_ + "/log");
  return {std::istreambuf_iterator<char>(log), {}};
}

}  // namespace cw::lab
