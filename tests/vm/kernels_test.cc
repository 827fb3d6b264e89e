// SPDX-License-Identifier: Apache-2.0
// The kernels that we say we run on: the bpf rung's own test programs inside machines that boot them. Verifiers differ;
// what the build host's kernel loads says nothing about theirs.
#include <string>

#include "gtest/gtest.h"
#include "tests/vm/image.h"
#include "tests/vm/rig.h"

namespace cw::vm {
namespace {

class KernelsTest : public testing::TestWithParam<const char*> {};

TEST_P(KernelsTest, BpfRungPasses) {
  auto image = Image::Build({.kernel = GetParam(), .files = {{CW_BPF_TESTS, "/usr/bin/bpf_tests"}}});
  if (absl::IsUnavailable(image.status())) GTEST_SKIP() << image.status().message();
  ASSERT_TRUE(image.ok()) << image.status();
  auto machine = Vm::Boot(*image, {.name = "kernel", .nics = {}, .rxe_device = "", .log_dir = ""});
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->WaitReady(absl::Seconds(120)).ok());
  EXPECT_EQ((*machine)->Run("uname -r").value_or(""), image->release() + "\n");

  // The budget file counts what the build host's verifier does.
  auto result =
      (*machine)->Exec("/usr/bin/bpf_tests --gtest_brief=1 --gtest_filter=-*VerifierBudget*", absl::Seconds(200));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0) << result->output;
}

INSTANTIATE_TEST_SUITE_P(Debian12, KernelsTest, testing::Values("6.1", "6.12"));

}  // namespace
}  // namespace cw::vm
