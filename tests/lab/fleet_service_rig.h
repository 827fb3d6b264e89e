// SPDX-License-Identifier: Apache-2.0
//
// Two racks with a real agent on each host, and a real cwfleetd that they tell what they see. One thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "userspace/lab/fleet_bed.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

class FleetServiceRig : public ::testing::Test {
 protected:
  static TestbedSpec Spec(const std::string& lab, int hosts_per_leaf) {
    TestbedSpec spec;
    spec.fabric = {.lab = lab, .leaves = 2, .spines = 2, .hosts_per_leaf = hosts_per_leaf};
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    spec.mode = "observe";
    return spec;
  }

  // `fabric_file`: "" for one that names spines alone, which two leaves cannot tell.
  void Up(TestbedSpec spec, std::string fabric_file = "", const std::string& more_config = "") {
    std::string name = (std::filesystem::temp_directory_path() / "cw_fleet_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    if (!store_size_.empty()) MountStore();
    ASSERT_FALSE(HasFatalFailure());
    for (int spine = 0; fabric_file.empty() && spine < spec.fabric.spines; ++spine) spines_ += NameOfSpine(spine);
    absl::StatusOr<std::unique_ptr<FleetBed>> bed =
        FleetBed::Make({.folder = folder_,
                        .hosts = spec.fabric.leaves * spec.fabric.hosts_per_leaf,
                        .store = store_size_.empty() ? "" : StoreFolder(),
                        .fabric_file = fabric_file.empty() ? spines_ : fabric_file,
                        .more_config = more_config,
                        .fleetd = CWFLEETD_BINARY,
                        .cwctl = CWCTL_BINARY});
    ASSERT_TRUE(bed.ok()) << bed.status();
    bed_ = *std::move(bed);
    spec.adjust = [this, more = spec.adjust](int host, config::Config& config) {
      bed_->Configure(host, config);
      if (more) more(host, config);
    };
    absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
    ASSERT_TRUE(testbed.ok()) << testbed.status();
    testbed_ = *std::move(testbed);
    const absl::Status started = bed_->Start(testbed_->fabric());
    ASSERT_TRUE(started.ok()) << started;
    started_at_ = absl::Now();
  }
  ~FleetServiceRig() override {
    bed_.reset();
    testbed_.reset();
    if (store_mounted_) umount2(StoreFolder().c_str(), MNT_DETACH);
    if (!HasFailure() && !folder_.empty()) std::filesystem::remove_all(folder_);
  }

  nlohmann::json Ask(std::vector<std::string> verb, const std::string& user = "alice") const {
    verb.insert(verb.begin(), "fleet");
    return bed_->Ask(verb, user);
  }
  std::string Why() const { return bed_->Log(); }

  // All switches and links, and for as long as the service wants to hear all hosts first.
  bool SeesAll() const {
    const FabricSpec& spec = testbed_->fabric().spec();
    const nlohmann::json reply = Ask({"topology"});
    const auto cables = static_cast<size_t>(spec.leaves * spec.spines + testbed_->fabric().hosts());
    return reply.contains("switches") && reply["links"].size() == 2 * cables &&
           reply["switches"].size() == static_cast<size_t>(spec.leaves + spec.spines) &&
           absl::Now() > started_at_ + absl::Seconds(15);
  }
  nlohmann::json Findings() const {
    const nlohmann::json reply = Ask({"findings"});
    return reply.contains("findings") ? reply["findings"] : nlohmann::json::array();
  }
  // What goes on of this cause; null: nothing, or more than one.
  nlohmann::json TheOne(const std::string& cause) const {
    nlohmann::json found;
    for (const nlohmann::json& finding : Findings()) {
      if (finding["cause"] != cause) continue;
      if (!found.is_null()) return {};
      found = finding;
    }
    return found;
  }
  absl::Status SetCable(int leaf, int spine, const Fault& fault) {
    absl::Status status = testbed_->fabric().SetFault(LinkDirection::LeafToSpine(leaf, spine), fault).status();
    status.Update(testbed_->fabric().SetFault(LinkDirection::SpineToLeaf(spine, leaf), fault).status());
    return status;
  }

  std::string StoreFolder() const { return folder_ + "/store"; }
  bool SameEvents(int host) const {
    const FleetBed::Seen written = bed_->Written(testbed_->fabric(), host);
    return !written.empty() && bed_->Stored(host) == written;
  }
  // Events of the agent's own making.
  void Act(int host, int times) {
    for (int i = 0; i < times; ++i) {
      api::v1::SetModeRequest request;
      request.set_mode(i % 2 == 0 ? api::v1::MODE_PROTECT : api::v1::MODE_OBSERVE);
      EXPECT_TRUE(testbed_->agent(host).SetMode(request).ok());
    }
  }

  std::string store_size_;  // before Up: of a disk for the store alone, such as "4m"; "": it has none of its own
  std::string folder_;
  std::unique_ptr<FleetBed> bed_;
  std::unique_ptr<Testbed> testbed_;
  absl::Time started_at_;

 private:
  void MountStore() {
    ASSERT_TRUE(std::filesystem::create_directory(StoreFolder()));
    ASSERT_EQ(mount("cwfabric", StoreFolder().c_str(), "tmpfs", 0, ("size=" + store_size_).c_str()), 0);
    store_mounted_ = true;
  }
  static std::string NameOfSpine(int spine) {
    const std::string s = std::to_string(spine);
    return "[[switch]]\nname = \"spine" + s + "\"\naddresses = [\"10.1." + s + ".0\", \"10.1." + s + ".2\"]\n";
  }
  std::string spines_;
  bool store_mounted_ = false;
};

}  // namespace cw::lab
