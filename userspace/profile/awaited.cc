// SPDX-License-Identifier: Apache-2.0
// For whose sends collectives wait: what makes a slow sender somebody's concern.
#include <algorithm>

#include "userspace/profile/profiles.h"

namespace cw::profile {
namespace {

constexpr int64_t kRunsNs = 1'000'000'000;     // a collective that takes longer is waited for
constexpr int64_t kJustNowNs = 2'000'000'000;  // since its end
constexpr size_t kMostLooks = 32;              // at processes: each goes through all pools

}  // namespace

void Profiles::AddOpenSends(const Process& process, int64_t now_ns, std::vector<QpOfProcess>& out) const {
  const OpenNow open = Open(process, now_ns);
  for (size_t i = 0; i < open.ops.size(); ++i) {
    const auto coll = process.book.open().find(open.coll[i]);
    if (!open.ops[i].send || coll == process.book.open().end() || now_ns - coll->second.start_ns < kRunsNs) continue;
    for (const Qp& qp : open.ops[i].qps) {
      if (qp.open > 0) out.push_back({.pid = process.pid, .qpn = qp.qpn});
    }
  }
}

std::vector<QpOfProcess> Profiles::AwaitedSends(int64_t now_ns) const {
  std::vector<QpOfProcess> out;
  size_t looks = 0;
  for (const auto& [connection, entry] : processes_) {
    const Process& process = *entry;
    if (process.closed_ns != 0) continue;
    const auto& open = process.book.open();
    const bool runs =
        std::any_of(open.begin(), open.end(), [&](const auto& c) { return now_ns - c.second.start_ns >= kRunsNs; });
    if (runs && looks++ < kMostLooks) AddOpenSends(process, now_ns, out);
    const auto& done = process.book.done();
    for (auto coll = done.rbegin(); coll != done.rend() && now_ns - coll->last_ns < kJustNowNs; ++coll) {
      if (!coll->slow) continue;
      const Verdict verdict = Judge(*coll);
      if (verdict.held == Held::kNetwork && verdict.qpn != 0) out.push_back({.pid = process.pid, .qpn = verdict.qpn});
    }
  }
  return out;
}

}  // namespace cw::profile
