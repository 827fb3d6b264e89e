// SPDX-License-Identifier: Apache-2.0
#include "tests/bpf/veth_rig.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "maps/names.h"
#include "maps/unique_fd.h"
#include "maps/wire.h"

namespace cw::test {
namespace {

constexpr uint8_t kRcSendOnly = 0x04;

// The process in names such as cwtest-PID-near, test-PID, cwtest-PID-run; 0 in others.
int OwnerOf(const std::string& name, absl::string_view prefix) {
  const std::vector<std::string> parts = absl::StrSplit(name, '-');
  int pid = 0;
  return parts.size() >= 2 && parts[0] == prefix && absl::SimpleAtoi(parts[1], &pid) ? pid : 0;
}

bool IsLeft(const std::filesystem::path& path, absl::string_view prefix) {
  const int pid = OwnerOf(path.filename(), prefix);
  return pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

void RemoveLeftovers() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/run/netns", error)) {
    if (IsLeft(entry.path(), "cwtest")) Shell("ip netns del " + entry.path().filename().string(), true);
  }
  for (const auto& entry : std::filesystem::directory_iterator(CW_PIN_ROOT, error)) {
    if (IsLeft(entry.path(), "test")) std::filesystem::remove_all(entry.path(), error);
  }
  for (const auto& entry : std::filesystem::directory_iterator("/tmp", error)) {
    if (IsLeft(entry.path(), "cwtest")) std::filesystem::remove_all(entry.path(), error);
  }
}

std::vector<uint8_t> RoceSend(uint32_t qpn, uint32_t psn, size_t payload) {
  std::vector<uint8_t> packet(CW_BTH_LEN + payload + CW_ICRC_LEN, 0xa5);
  const uint32_t qpn_be = htonl(qpn), psn_be = htonl(psn & 0xffffff);
  packet[0] = kRcSendOnly;
  packet[1] = 0;  // no padding, version 0
  packet[2] = packet[3] = 0xff;
  std::memcpy(&packet[4], &qpn_be, 4);
  std::memcpy(&packet[8], &psn_be, 4);
  return packet;
}

}  // namespace

std::string Shell(const std::string& command, bool may_fail) {
  FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) {
    ADD_FAILURE() << "popen: " << command;
    return "";
  }
  std::string out;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.append(buffer, n);
  const int rc = pclose(pipe);
  if (rc != 0 && !may_fail) ADD_FAILURE() << command << " failed:\n" << out;
  return out;
}

VethRig::VethRig(int mtu)
    : near_(absl::StrFormat("cwtest-%d-near", getpid())), far_(absl::StrFormat("cwtest-%d-far", getpid())) {
  RemoveLeftovers();
  Shell(absl::StrFormat("ip netns add %s && ip netns add %s", near_, far_));
  Shell(absl::StrFormat("ip -n %s link add %s mtu %d type veth peer name %s mtu %d netns %s", near_, kDevice, mtu,
                        kDevice, mtu, far_));
  for (const auto& [netns, address] : {std::pair{near_, kNear}, std::pair{far_, kFar}}) {
    Shell(absl::StrFormat("ip -n %s addr add %s/24 dev %s && ip -n %s link set %s up && ip -n %s link set lo up", netns,
                          address, kDevice, netns, kDevice, netns));
  }
}

VethRig::~VethRig() { Shell(absl::StrFormat("ip netns del %s; ip netns del %s", near_, far_), true); }

void VethRig::In(const std::string& netns, absl::FunctionRef<void()> run) const {
  maps::UniqueFd home(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  maps::UniqueFd there(open(("/run/netns/" + netns).c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(home.ok() && there.ok() && setns(there.get(), CLONE_NEWNET) == 0) << "enter " << netns;
  run();
  ASSERT_EQ(setns(home.get(), CLONE_NEWNET), 0) << "leave " << netns;
}

std::string VethRig::NearShell(const std::string& command, bool may_fail) const {
  std::string out;
  InNear([&] { out = Shell(command, may_fail); });
  return out;
}

void VethRig::SendRoce(bool to_near, uint32_t qpn, uint32_t first_psn, int packets, size_t payload) const {
  In(to_near ? far_ : near_, [&] {
    maps::UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(CW_ROCE_PORT);
    inet_pton(AF_INET, to_near ? kNear : kFar, &to.sin_addr);
    for (int i = 0; i < packets; ++i) {
      const auto packet = RoceSend(qpn, first_psn + static_cast<uint32_t>(i), payload);
      // Not connected, so that an ICMP error of an earlier packet does not fail this one.
      const ssize_t sent =
          sendto(fd.get(), packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to));
      ASSERT_EQ(sent, static_cast<ssize_t>(packet.size())) << strerror(errno);
    }
  });
}

}  // namespace cw::test
