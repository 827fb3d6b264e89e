// SPDX-License-Identifier: Apache-2.0
//
// Captures at switch ports, by tcpdump.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/lab/fabric_impl.h"
#include "userspace/lab/fabric_layout.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(10);
constexpr absl::Duration kStopLimit = absl::Seconds(10);
constexpr absl::Duration kQuiet = absl::Milliseconds(60);
constexpr absl::Duration kQuietLimit = absl::Seconds(2);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// tcpdump forgets what it has not read when it is told to end: wait until the file has stopped growing.
void WaitUntilQuiet(const std::string& file) {
  const absl::Time limit = absl::Now() + kQuietLimit;
  absl::Time changed = absl::Now();
  for (uintmax_t size = 0; absl::Now() < limit && absl::Now() < changed + kQuiet;) {
    std::error_code ignored;
    const uintmax_t now = std::filesystem::file_size(file, ignored);
    if (now != size) changed = absl::Now();
    size = now;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

uint64_t NumberBefore(const std::string& text, const std::string& words) {
  std::smatch match;
  return std::regex_search(text, match, std::regex("([0-9]+) " + words)) ? std::stoull(match[1]) : 0;
}

absl::Status WaitUntilListening(const RunningCapture& capture) {
  const absl::Time deadline = absl::Now() + kStartLimit;
  while (absl::Now() < deadline) {
    if (absl::StrContains(ReadFile(capture.log_file), "listening on")) return absl::OkStatus();
    if (!IsAlive(capture.process)) break;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return absl::FailedPreconditionError(absl::StrCat("tcpdump does not start: ", ReadFile(capture.log_file)));
}

}  // namespace

absl::StatusOr<int> Fabric::StartCapture(const LinkDirection& link, const std::string& file,
                                         const std::string& pcap_filter) {
  if (absl::Status status = impl_->Check(link); !status.ok()) return status;
  const bool to_host = link.tier == LinkDirection::Tier::kHost && link.toward == LinkDirection::Toward::kDown;
  const SwitchPort port = to_host ? impl_->Sender(link) : impl_->Receiver(link);
  const int number = impl_->next_capture++;
  RunningCapture capture;
  capture.file = file;
  capture.log_file = absl::StrCat(RunDir(), "/tcpdump-", getpid(), "-", number, ".log");
  absl::Status status = RunInNetns(NetnsPath(port.netns), [&] {
    // -B in KiB: a burst while tcpdump does not run must fit. -Z root: the file may be in a folder of root's.
    std::vector<std::string> argv = {
        "tcpdump", "-n", "-i", port.device, "-Q", to_host ? "out" : "in", "--immediate-mode", "-U", "-Z", "root", "-B",
        "16384",   "-s", "0",  "-w",        file};
    if (!pcap_filter.empty()) argv.push_back(pcap_filter);
    absl::StatusOr<ProcessId> process = StartProcess(argv, capture.log_file);
    if (!process.ok()) return process.status();
    capture.process = *process;
    return SaveProcess(spec().lab, *process, absl::StrCat("tcpdump ", link.Name()));
  });
  if (status.ok()) status = WaitUntilListening(capture);
  if (!status.ok()) {
    if (capture.process.pid) EndProcess(capture.process).IgnoreError();
    return status;
  }
  impl_->captures[number] = capture;
  return number;
}

absl::StatusOr<CaptureResult> Fabric::StopCapture(int capture) {
  auto it = impl_->captures.find(capture);
  if (it == impl_->captures.end()) return absl::NotFoundError(absl::StrCat("no capture ", capture));
  const RunningCapture ended = it->second;
  impl_->captures.erase(it);
  WaitUntilQuiet(ended.file);
  if (absl::Status status = EndProcess(ended.process, kStopLimit); !status.ok()) return status;
  ForgetProcess(ended.process.pid);
  const std::string log = ReadFile(ended.log_file);
  std::error_code ignored;
  std::filesystem::remove(ended.log_file, ignored);
  if (!absl::StrContains(log, "captured")) return absl::InternalError(absl::StrCat("tcpdump failed: ", log));
  const uint64_t captured = NumberBefore(log, "packets? captured");
  const uint64_t received = NumberBefore(log, "packets? received by filter");
  const uint64_t unread = received > captured ? received - captured : 0;
  return CaptureResult{captured, NumberBefore(log, "packets? dropped by kernel") + unread};
}

}  // namespace cw::lab
