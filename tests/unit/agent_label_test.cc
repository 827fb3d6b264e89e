// SPDX-License-Identifier: Apache-2.0
// Labels of processes, over a made-up /proc.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "userspace/agent/label_book.h"
#include "userspace/agent/label_orders.h"

namespace cw::agent {
namespace {

namespace fs = std::filesystem;

class Labels : public ::testing::Test {
 protected:
  Labels() : folder_(Folder()), book_({.proc = folder_, .sys = folder_}) {
    Process(10, "/system.slice/slurmstepd.scope/job_7/step_0", 111);
    Process(11, "/system.slice/slurmstepd.scope/job_77", 112);
  }
  ~Labels() override { fs::remove_all(folder_); }
  static std::string Folder() {
    char name[] = "/tmp/cw-labels-XXXXXX";
    return mkdtemp(name);
  }
  void Process(uint32_t pid, const std::string& cgroup, uint64_t started) {
    const std::string folder = absl::StrCat(folder_, "/", pid);
    fs::create_directories(folder);
    std::ofstream(folder + "/cgroup") << "1:name=systemd:/x\n0::" << cgroup << "\n";
    // The name may have what separates fields.
    std::ofstream(folder + "/stat") << pid << " (py) thon 3) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 " << started
                                    << " 20\n";
  }
  std::string OfPid(uint32_t pid) {
    const Label* label = book_.Of(pid);
    return label == nullptr ? "" : label->label;
  }
  const std::string folder_;
  LabelBook book_;
};

TEST_F(Labels, OfAProcessUntilItEnds) {
  EXPECT_EQ(OfPid(10), "");
  ASSERT_TRUE(book_.SetPid(10, "train").ok());
  EXPECT_EQ(OfPid(10), "train");
  EXPECT_EQ(OfPid(11), "");
  EXPECT_EQ(OfPid(0), "") << "the kernel's own queue pairs";
  book_.Refresh();
  EXPECT_EQ(OfPid(10), "train");
  Process(10, "/x", 999);  // its number was given to another
  book_.Refresh();
  EXPECT_EQ(OfPid(10), "");
  EXPECT_TRUE(absl::IsNotFound(book_.SetPid(12, "train")));
}

TEST_F(Labels, OfAControlGroupAndAllBelow) {
  ASSERT_TRUE(book_.SetCgroup("/system.slice/slurmstepd.scope/job_7", "job 7").ok());
  EXPECT_EQ(OfPid(10), "job 7");
  EXPECT_EQ(OfPid(11), "") << "job_77 is not below job_7";
  ASSERT_TRUE(book_.SetCgroup("/system.slice/slurmstepd.scope/job_7/step_0", "step").ok());
  EXPECT_EQ(OfPid(10), "step");
  ASSERT_TRUE(book_.SetPid(10, "own").ok());
  EXPECT_EQ(OfPid(10), "own");
  EXPECT_EQ(book_.All().size(), 3u);
  EXPECT_EQ(book_.ClearPid(10), 1u);
  EXPECT_EQ(book_.ClearCgroup("/system.slice/slurmstepd.scope/job_7/step_0"), 1u);
  EXPECT_EQ(OfPid(10), "job 7");
  EXPECT_EQ(book_.ClearAll(), 1u);
  EXPECT_EQ(OfPid(10), "");
  // A process that moved is seen where it is with the next look.
  ASSERT_TRUE(book_.SetCgroup("/moved", "moved").ok());
  EXPECT_EQ(OfPid(11), "");
  Process(11, "/moved/deep", 112);
  book_.Refresh();
  EXPECT_EQ(OfPid(11), "moved");
}

TEST_F(Labels, WhatIsNoLabelIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(book_.SetPid(10, "")));
  EXPECT_TRUE(absl::IsInvalidArgument(book_.SetPid(10, std::string(65, 'x'))));
  for (const char* group : {"", "/", "job7", "/job7/"})
    EXPECT_TRUE(absl::IsInvalidArgument(book_.SetCgroup(group, "x")));
  for (size_t i = 0; i < LabelBook::kMost; ++i) ASSERT_TRUE(book_.SetCgroup(absl::StrCat("/g", i), "x").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(book_.SetCgroup("/one/more", "x")));
}

class LabelOrders : public Labels {
 protected:
  absl::StatusOr<v1::ActionReply> Set(uint32_t pid, const std::string& cgroup, const std::string& label) {
    v1::LabelRequest request;
    request.set_pid(pid);
    request.set_cgroup(cgroup);
    request.set_label(label);
    return SetLabel(book_, journal_, {.name = "ann", .role = api::Role::kSteer}, request);
  }
  Journal journal_{{}};
};

TEST_F(LabelOrders, WhoGaveALabelIsToldWithHowToTakeItAway) {
  const absl::StatusOr<v1::ActionReply> of_process = Set(10, "", "train");
  ASSERT_TRUE(of_process.ok()) << of_process.status();
  EXPECT_EQ(of_process->effect(), "process 10 is train");
  EXPECT_EQ(of_process->undo(), "label clear --pid 10");
  EXPECT_EQ(journal_.log().After(0).at(0).text, "ann: process 10 is train");
  const absl::StatusOr<v1::ActionReply> of_group = Set(0, "/system.slice", "batch");
  ASSERT_TRUE(of_group.ok()) << of_group.status();
  EXPECT_EQ(of_group->effect(), "control group /system.slice and all below is batch");
  EXPECT_EQ(of_group->undo(), "label clear --cgroup /system.slice");
  EXPECT_EQ(ListLabels(book_).labels_size(), 2);
}

TEST_F(LabelOrders, TakingAwayWhatIsNotThereIsAnErrorButForAll) {
  EXPECT_TRUE(absl::IsNotFound(Set(10, "", "").status()));
  EXPECT_TRUE(absl::IsNotFound(Set(0, "/none", "").status()));
  EXPECT_EQ(Set(0, "", "")->effect(), "label of every process and control group taken away");
  ASSERT_TRUE(Set(10, "", "train").ok());
  EXPECT_EQ(Set(10, "", "")->effect(), "label of process 10 taken away");
  EXPECT_EQ(OfPid(10), "");
}

}  // namespace
}  // namespace cw::agent
