// SPDX-License-Identifier: Apache-2.0
//
// What the loader's tests share: a veth rig, an instance of its own with its own lock folder, and its removal.
#pragma once

#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "earlier_release.skel.h"
#include "tests/bpf/veth_rig.h"
#include "userspace/dataplane/dataplane.h"
#include "userspace/host/live.h"

namespace cw::test {

inline dataplane::Options TestOptions(const std::string& suffix = "") {
  dataplane::Options options;
  options.instance = absl::StrFormat("test-%d%s", getpid(), suffix);
  options.run_root = absl::StrFormat("/tmp/cwtest-%d-run", getpid());
  options.max_flows = 4096;
  options.max_tx_flows = 1024;
  options.max_pairs = 64;
  return options;
}

inline absl::string_view EarlierRelease() {
  size_t size = 0;
  const void* bytes = earlier_release__elf_bytes(&size);
  return absl::string_view(static_cast<const char*>(bytes), size);
}

// Key of the flow of packets to `qpn`.
inline cw_flow_key FlowKey(const char* from, const char* to, uint32_t qpn) {
  cw_flow_key key = {};
  const auto put = [](const char* text, __u8* out) {
    unsigned a, b, c, d;
    ASSERT_EQ(sscanf(text, "%u.%u.%u.%u", &a, &b, &c, &d), 4);
    const __u8 mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, __u8(a), __u8(b), __u8(c), __u8(d)};
    std::copy(mapped, mapped + 16, out);
  };
  put(from, key.saddr);
  put(to, key.daddr);
  key.dqpn = qpn;
  return key;
}

class DataplaneTest : public ::testing::Test {
 protected:
  void TearDown() override {
    plane_.reset();
    rig_.InNear([&] { EXPECT_TRUE(dataplane::Dataplane::Remove(options_).ok()); });
    std::filesystem::remove_all(options_.run_root);
    EXPECT_FALSE(std::filesystem::exists(PinFolder())) << "pins are left";
  }

  // The agent's life, in the near namespace.
  void Open() { Open(options_); }
  void Open(const dataplane::Options& options) {
    plane_.reset();
    rig_.InNear([&] {
      auto opened = dataplane::Dataplane::Open(options);
      ASSERT_TRUE(opened.ok()) << opened.status().message();
      plane_ = *std::move(opened);
    });
  }
  dataplane::AttachInfo Attach() {
    dataplane::AttachInfo info;
    rig_.InNear([&] {
      const auto attached = plane_->Attach(VethRig::kDevice);
      ASSERT_TRUE(attached.ok()) << attached.status().message();
      info = *attached;
    });
    return info;
  }
  absl::Status TryAttach() {
    absl::Status status;
    rig_.InNear([&] { status = plane_->Attach(VethRig::kDevice).status(); });
    return status;
  }
  uint32_t NearIfindex() {
    uint32_t index = 0;
    rig_.InNear([&] { index = if_nametoindex(VethRig::kDevice); });
    return index;
  }
  // "xdp native cw_xdp_ingress; tcx egress cw_tc_egress; ", whoever attached them.
  std::string Programs(const std::string& nic = VethRig::kDevice) {
    std::string out;
    rig_.InNear([&] {
      host::KernelProbe kernel(options_.pin_root);
      for (const auto& p : kernel.Programs(nic).value_or(std::vector<host::AttachedProgram>()))
        out += p.hook + " " + p.name + "; ";
    });
    return out;
  }
  // Without clsact, which stays where a kernel has no tcx.
  std::string Qdiscs() { return rig_.NearShell("tc qdisc show dev nic0 | grep -v clsact", /*may_fail=*/true); }
  std::string PinFolder() const { return options_.pin_root + "/" + options_.instance; }

  VethRig rig_;
  dataplane::Options options_ = TestOptions();
  std::unique_ptr<dataplane::Dataplane> plane_;
};

}  // namespace cw::test
