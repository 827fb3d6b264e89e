// SPDX-License-Identifier: Apache-2.0
// The kernels that we say we run on: the bpf rung's own test programs inside two machines that boot them. Verifiers
// differ; what the build host's kernel loads says nothing about theirs.
//
// CW_VM_KERNELS="6.1 6.12" cw_vm_kernels_test   runs more than 6.1 (a package of 107 MB each; so not in every run)
// CW_VM_SHARDS=1 cw_vm_kernels_test             runs all tests; every third of some by default: each of those loads the
//                                               programs anew, which takes an emulated processor seven seconds
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/vm/image.h"
#include "tests/vm/rig.h"

namespace cw::vm {
namespace {

std::vector<std::string> Kernels() {
  const char* named = std::getenv("CW_VM_KERNELS");
  return absl::StrSplit(named == nullptr ? "6.1" : named, ' ', absl::SkipEmpty());
}

std::string Shards(const std::string& program) {
  const char* given = std::getenv("CW_VM_SHARDS");
  const bool upgrades = absl::StrContains(program, "cw_migration_tests");  // each loads several times
  const bool loads = absl::StrContains(program, "cw_dataplane_tests") || absl::StrContains(program, "cw_probe_kernel");
  if (!loads && !upgrades) return "1";
  return given != nullptr ? given : upgrades ? "6" : "3";
}

std::string TestName(const testing::TestParamInfo<std::string>& kernel) {
  return absl::StrReplaceAll(kernel.param, {{".", "_"}, {"-", "_"}, {"+", "_"}});
}

std::string GuestPath(const std::string& program) { return "/usr/bin/" + program.substr(program.rfind('/') + 1); }

class KernelsTest : public testing::TestWithParam<std::string> {
 protected:
  // A machine of one processor takes the programs that no other one has, until none is left.
  static void RunPrograms(const Image& image, const std::string& name, const std::vector<std::string>& programs,
                          std::atomic<size_t>& next) {
    auto machine = Vm::Boot(image, {.name = name, .nics = {}, .rxe_device = "", .log_dir = ""});
    ASSERT_TRUE(machine.ok()) << machine.status();
    const absl::Status ready = (*machine)->WaitReady(absl::Minutes(5));
    ASSERT_TRUE(ready.ok()) << ready;
    EXPECT_EQ((*machine)->Run("uname -r").value_or(""), image.release() + "\n");
    for (size_t i = next++; i < programs.size(); i = next++) {
      // The budget file counts what the build host's verifier does.
      auto result =
          (*machine)->Exec(absl::StrCat("GTEST_SHARD_INDEX=0 GTEST_TOTAL_SHARDS=", Shards(programs[i]), " ",
                                        GuestPath(programs[i]), " --gtest_brief=1 --gtest_filter=-*VerifierBudget*"),
                           absl::Seconds(600));
      ASSERT_TRUE(result.ok()) << programs[i] << ": " << result.status();
      EXPECT_EQ(result->exit_code, 0) << result->output;
    }
  }
};

TEST_P(KernelsTest, BpfRungPasses) {
  std::vector<std::string> programs = absl::StrSplit(CW_BPF_TESTS, '|');
  ImageOptions options{.kernel = GetParam(), .files = {}};
  for (const std::string& program : programs) options.files.emplace_back(program, GuestPath(program));
  auto image = Image::Build(options);
  if (absl::IsUnavailable(image.status())) GTEST_SKIP() << image.status().message();
  ASSERT_TRUE(image.ok()) << image.status();
  std::atomic<size_t> next = 0;
  std::thread second([&] { RunPrograms(*image, "kernel1", programs, next); });
  RunPrograms(*image, "kernel0", programs, next);
  second.join();
  EXPECT_GE(next, programs.size());
}

INSTANTIATE_TEST_SUITE_P(Debian12, KernelsTest, testing::ValuesIn(Kernels()), TestName);

}  // namespace
}  // namespace cw::vm
