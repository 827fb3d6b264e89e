// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/link_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace cw::agent {
namespace {

class LinkFile : public ::testing::Test {
 protected:
  LinkFile() {
    char name[] = "/tmp/cw-links-XXXXXX";
    folder_ = mkdtemp(name);
    file_ = folder_ + "/" + kLinkFile;
    for (int i = 1; i <= 8; ++i) book_.Add({.links = {"10.1.0.0"}, .began_ns = i, .seen_by = {{7, "h1/2"}}}, INT64_MAX);
  }
  ~LinkFile() override { std::filesystem::remove_all(folder_); }

  control::LinkBook book_;
  std::string folder_, file_;
};

TEST_F(LinkFile, TheNextAgentGoesOnCounting) {
  ASSERT_TRUE(SaveLinkBook(file_, "boot", book_).ok());
  control::LinkBook next;
  ASSERT_TRUE(LoadLinkBook(file_, "boot", next).ok());
  const auto alert = next.Add({.links = {"10.1.0.0"}, .began_ns = 9, .seen_by = {{1, "h2/0"}}}, INT64_MAX);
  ASSERT_TRUE(alert);
  EXPECT_EQ(alert->count.flaps, 9);
  EXPECT_EQ(alert->first_ns, 1);
  EXPECT_EQ(alert->seen_by, (std::vector<std::string>{"h1/2", "h2/0"}));
  EXPECT_FALSE(std::filesystem::exists(file_ + ".new"));
}

TEST_F(LinkFile, AnotherBootAndRubbishAreNotRead) {
  control::LinkBook next;
  EXPECT_TRUE(absl::IsNotFound(LoadLinkBook(file_, "boot", next)));
  ASSERT_TRUE(SaveLinkBook(file_, "boot", book_).ok());
  EXPECT_TRUE(absl::IsNotFound(LoadLinkBook(file_, "another", next)));
  for (const char* text : {"", "{", R"({"boot":"boot"})", R"({"boot":"boot","version":2,"outages":[]})",
                           R"({"boot":"boot","version":1,"outages":[{"links":7}]})"}) {
    std::ofstream(file_, std::ios::trunc) << text;
    EXPECT_TRUE(absl::IsInvalidArgument(LoadLinkBook(file_, "boot", next))) << text;
  }
  EXPECT_TRUE(next.outages().empty());
  EXPECT_FALSE(SaveLinkBook(folder_ + "/none/file", "boot", book_).ok());
}

}  // namespace
}  // namespace cw::agent
