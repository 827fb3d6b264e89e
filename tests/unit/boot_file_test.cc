// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/boot_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace cw {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class BootFileTest : public ::testing::Test {
 protected:
  ~BootFileTest() override { std::filesystem::remove_all(folder_); }
  absl::Status Load(const std::string& boot, int version = 1) {
    return BootFile(path_, boot, version).Load([&](const json& state) { read_ = state.at("x").get<int>(); });
  }
  void Write(const std::string& text) { std::ofstream(path_) << text; }

  const std::string folder_ = [] {
    std::string name = ::testing::TempDir() + "boot_file_XXXXXX";
    return std::string(mkdtemp(name.data()));
  }();
  const std::string path_ = folder_ + "/state.json";
  int read_ = 0;
};

TEST_F(BootFileTest, IsReadInTheSameBootAlone) {
  EXPECT_TRUE(absl::IsNotFound(Load("a")));
  ASSERT_TRUE(BootFile(path_, "a", 1).Save({{"x", 7}}).ok());
  EXPECT_TRUE(Load("a").ok());
  EXPECT_EQ(read_, 7);
  read_ = 0;
  EXPECT_TRUE(absl::IsNotFound(Load("b")));
  EXPECT_TRUE(absl::IsNotFound(Load("")));
  EXPECT_EQ(read_, 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "nothing is left beside it";
  EXPECT_TRUE(BootFile(path_, "a", 1).Remove().ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(BootFile(path_, "a", 1).Remove().ok());
}

TEST_F(BootFileTest, WithoutABootsNameNothingIsRead) {
  ASSERT_TRUE(BootFile(path_, "", 1).Save({{"x", 7}}).ok());
  EXPECT_TRUE(absl::IsNotFound(Load("")));
}

TEST_F(BootFileTest, WhatCannotBeReadIsNamed) {
  ASSERT_TRUE(BootFile(path_, "a", 2).Save({{"x", 7}}).ok());
  EXPECT_THAT(std::string(Load("a", 1).message()), HasSubstr(path_ + " is of another version"));
  for (const char* text : {"", "{", "[]", "7", R"({"boot": 1})", R"({"boot": "a"})", R"({"boot": "a", "x": "y"})"}) {
    Write(text);
    EXPECT_TRUE(absl::IsInvalidArgument(Load("a"))) << text << ": " << Load("a");
  }
  Write(R"({"boot": "a", "x": 9})");
  EXPECT_TRUE(Load("a").ok()) << "earlier releases wrote no version in some";
}

TEST_F(BootFileTest, ThatCannotBeWrittenSaysSoAndKeepsTheOldOne) {
  const BootFile nowhere(folder_ + "/none/state.json", "a", 1);
  EXPECT_THAT(std::string(nowhere.Save({{"x", 7}}).message()), HasSubstr("cannot write"));
  ASSERT_TRUE(BootFile(path_, "a", 1).Save({{"x", 7}}).ok());
  std::filesystem::create_directory(path_ + ".new");
  EXPECT_FALSE(BootFile(path_, "a", 1).Save({{"x", 8}}).ok());
  EXPECT_TRUE(Load("a").ok());
  EXPECT_EQ(read_, 7);
}

}  // namespace
}  // namespace cw
