// SPDX-License-Identifier: Apache-2.0
// Writes the fuzzer's seed recordings: a whole file, and what fuzz_replay.cc makes one of, each behind its first byte.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "userspace/control/contention_rules.h"
#include "userspace/replay/format.h"

namespace {

using cw::Addr;

// A host with two paths and a flow on the worse one.
cw::control::Observation Seen(int64_t now_ns) {
  cw::control::Observation seen{.now_ns = now_ns, .window_ns = 40'000'000, .line_rate_bps = 2e8, .pairs = {}};
  const Addr here = Addr::FromV4(0x0a000001), there = Addr::FromV4(0x0a000002);
  cw::control::PairObservation pair{.pair = {here, there}, .table_valid = true, .paths = {}, .flows = {}};
  for (uint8_t slot = 0; slot < 2; ++slot) {
    const double queue_ns = slot == 0 ? 4e5 + static_cast<double>(now_ns % 7) : 0;
    pair.paths.push_back({.slot = slot,
                          .usable = true,
                          .queue_samples = 40,
                          .queue_ns = queue_ns,
                          .base_ns = 6000,
                          .links = {slot + 1u}});
  }
  const auto look = [](uint8_t slot) {
    return cw::control::FreshLook{.slot = slot, .usable = true, .samples = 4, .queue_ns = 9e4, .base_ns = 6000};
  };
  seen.reprobed.push_back(
      {.pair = pair.pair, .flow = {here, there, 7}, .stays = true, .candidates = {look(1), look(0)}});
  pair.flows.push_back({.key = {here, there, 7}, .slot = 0, .bytes = 500'000, .cnps = 3});
  seen.pairs.push_back(std::move(pair));
  return seen;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: cw_make_replay_corpus DIRECTORY\n");
    return 2;
  }
  namespace replay = cw::replay;
  std::filesystem::create_directories(argv[1]);
  const auto write = [&](const char* name, char kind, const std::string& bytes) {
    std::ofstream(std::string(argv[1]) + "/" + name, std::ios::binary) << kind << bytes;
  };
  cw::control::ContentionState state({}, 1);
  const std::string head = replay::Encode(replay::Head{.host = "h0", .version = "0.1.0", .memory = Snapshot(state)});
  std::string file = replay::FileHead() + replay::Record(replay::kHead, head);
  for (int window = 1; window <= 12; ++window) {
    const cw::control::Observation seen = Seen(window * 40'000'000);
    const std::string payload = replay::Encode(seen, cw::control::DecideMoves(seen, state));
    file += replay::Record(replay::kWindow, payload);
    if (window == 12) write("window", 1, payload);
  }
  write("file", 0, file);
  write("memory", 2, Snapshot(state));
  write("head", 3, head);
  return 0;
}
