// SPDX-License-Identifier: Apache-2.0
// A second profiler behind the plug-in: it gets every event that it wants, with its own handles as parents.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "nccl_harness.h"

namespace cw::nccl {
namespace {

struct ChainCounts {
  int inits, finalizes, starts, stops, states, wrong;
};

TEST(NcclChain, BothGetTheirEventsWithTheirOwnHandles) {
  setenv("CWFABRIC_INPROC_SOCKET", "/nonexistent/inproc.sock", 1);
  setenv("CWFABRIC_NCCL_PROFILER_CHAIN", NCCL_OTHER, 1);
  Plugin plugin(NCCL_PLUGIN, 6);
  ASSERT_TRUE(plugin.ok());
  int mask = 0;
  void* a = plugin.Init(1, "a", 2, 4, 0, &mask);
  void* b = plugin.Init(2, "b", 2, 4, 0, &mask);
  EXPECT_EQ(mask, (2 | 4 | 8 | 16 | 128) | (256 | 512));
  constexpr int kRounds = 300;
  for (int i = 0; i < kRounds; ++i) {
    CollSpec spec{.seq = static_cast<uint64_t>(i)};
    spec.ops = {{.peer = 1, .steps = 2}, {.peer = 3, .send = false, .steps = 1}};
    plugin.Run(i % 2 == 0 ? a : b, spec);
  }
  plugin.Finalize(a);
  plugin.Finalize(b);
  EXPECT_EQ(plugin.failures(), 0);
  void* library = dlopen(NCCL_OTHER, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << "it was not loaded";
  const auto* counts = static_cast<ChainCounts*>(dlsym(library, "chain_counts"));
  ASSERT_NE(counts, nullptr);
  EXPECT_EQ(counts->wrong, 0);
  EXPECT_EQ(counts->inits, 2);
  EXPECT_EQ(counts->finalizes, 2);
  // group, call, collective, two operations, three steps
  EXPECT_EQ(counts->starts, kRounds * 8);
  EXPECT_EQ(counts->stops, kRounds * 8);
  EXPECT_EQ(counts->states, kRounds * (2 + 3 * 3));
}

// The other has no table of this version: ours goes on alone.
TEST(NcclChain, AnotherVersionIsNotChained) {
  setenv("CWFABRIC_INPROC_SOCKET", "/nonexistent/inproc.sock", 1);
  setenv("CWFABRIC_NCCL_PROFILER_CHAIN", NCCL_OTHER, 1);
  Plugin plugin(NCCL_PLUGIN, 4);
  int mask = 0;
  void* context = plugin.Init(1, "a", 2, 4, 0, &mask);
  EXPECT_EQ(mask, 2 | 4 | 8 | 16 | 128);
  plugin.Run(context, {});
  plugin.Finalize(context);
  EXPECT_EQ(plugin.failures(), 0);
}

}  // namespace
}  // namespace cw::nccl
