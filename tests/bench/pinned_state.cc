// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/pinned_state.h"

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "maps/counters.h"
#include "maps/names.h"
#include "maps/unique_fd.h"
#include "maps/views.h"
#include "userspace/dataplane/program_info.h"

namespace cw::bench {
namespace {

std::string Folder(const std::string& instance) { return absl::StrCat(CW_PIN_ROOT, "/", instance, "/"); }

std::string Address(const __u8* a) { return absl::StrFormat("%d.%d.%d.%d", a[12], a[13], a[14], a[15]); }

std::string NameOf(const cw_flow_key& key) {
  return absl::StrFormat("%s>%s/qp0x%x", Address(key.saddr), Address(key.daddr), key.dqpn);
}

// A ring's two positions are its first two pages.
absl::StatusOr<uint64_t> Unread(const maps::BpfMap& ring) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  uint64_t position[2] = {};
  for (int i = 0; i < 2; ++i) {
    void* at = mmap(nullptr, page, PROT_READ, MAP_SHARED, ring.fd(), static_cast<off_t>(page) * i);
    if (at == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("mmap the ring ", ring.name()));
    position[i] = __atomic_load_n(static_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE);
    munmap(at, page);
  }
  return position[1] - std::min(position[0], position[1]);
}

}  // namespace

absl::StatusOr<PinnedState> ReadPinned(const std::string& instance) {
  const std::string folder = Folder(instance);
  auto counters_map = maps::BpfMap::OpenPinned(folder + CW_MAP_COUNTERS);
  auto sent_map = maps::BpfMap::OpenPinned(folder + CW_MAP_TX_FLOWS);
  auto received_map = maps::BpfMap::OpenPinned(folder + CW_MAP_FLOWS);
  for (const auto* map : {&counters_map, &sent_map, &received_map}) {
    if (!map->ok()) return map->status();
  }
  auto counters = maps::CountersView::Create(*std::move(counters_map));
  auto sent = maps::TxFlowsView::Create(*std::move(sent_map));
  auto received = maps::FlowsView::Create(*std::move(received_map));
  if (!counters.ok()) return counters.status();
  if (!sent.ok()) return sent.status();
  if (!received.ok()) return received.status();

  PinnedState state;
  const auto sums = counters->Sum();
  if (!sums.ok()) return sums.status();
  for (const maps::CounterInfo& counter : maps::Counters()) state.counters[counter.name] = *sums.*counter.field;
  absl::Status read = sent->ForEach([&](const cw_flow_key& key, const cw_tx_flow& flow) {
    state.sent[NameOf(key)] = {flow.slot, flow.port, flow.moves, flow.flow.packets, flow.reason};
  });
  read.Update(received->ForEach(
      [&](const cw_flow_key& key, const cw_flow& flow) { state.received[NameOf(key)] = flow.packets; }));
  if (!read.ok()) return read;
  return state;
}

Damage Compare(const PinnedState& before, const PinnedState& after) {
  Damage damage;
  const auto lower = [&](const std::string& name, uint64_t was, uint64_t is) {
    if (is >= was) return;
    ++damage.counters_back;
    damage.what.push_back(absl::StrFormat("%s went back from %d to %d", name, was, is));
  };
  for (const auto& [name, was] : before.counters) {
    const auto is = after.counters.find(name);
    lower(name, was, is == after.counters.end() ? 0 : is->second);
  }
  for (const auto& [name, was] : before.received) {
    if (const auto is = after.received.find(name); is != after.received.end())
      lower(absl::StrCat("packets received of ", name), was, is->second);
  }
  for (const auto& [name, was] : before.sent) {
    const auto is = after.sent.find(name);
    if (is == after.sent.end()) {
      ++damage.steering_changed;
      damage.what.push_back(absl::StrCat(name, " is no longer known"));
      continue;
    }
    lower(absl::StrCat("packets sent of ", name), was.packets, is->second.packets);
    if (is->second.slot == was.slot && is->second.port == was.port) continue;
    ++damage.steering_changed;
    damage.what.push_back(absl::StrFormat("%s went from path %d (port %d) to path %d (port %d), reason %d", name,
                                          was.slot, was.port, is->second.slot, is->second.port, is->second.reason));
  }
  return damage;
}

absl::StatusOr<std::map<std::string, MapFill>> ReadFill(const std::string& instance) {
  std::map<std::string, MapFill> fills;
  std::error_code error;
  for (const auto& pin : std::filesystem::directory_iterator(Folder(instance), error)) {
    const std::string name = pin.path().filename();
    const bool program = name == CW_PROG_XDP || name == CW_PROG_TC || name == CW_PROG_TC_IN;
    if (program || !absl::StartsWith(name, "cw_")) continue;  // besides, links
    const auto map = maps::BpfMap::OpenPinned(pin.path());
    if (!map.ok()) return map.status();
    const uint32_t type = map->shape().type;
    if (type == BPF_MAP_TYPE_RINGBUF) {
      const absl::StatusOr<uint64_t> unread = Unread(*map);
      if (!unread.ok()) return unread.status();
      fills[name] = {.entries = *unread, .ring = true};
    }
    if (type != BPF_MAP_TYPE_HASH && type != BPF_MAP_TYPE_LRU_HASH) continue;
    MapFill& fill = fills[name];
    fill.evicts = type == BPF_MAP_TYPE_LRU_HASH;
    const absl::Status counted = map->ForEach([&](const void*, const void*) { ++fill.entries; });
    if (!counted.ok()) return counted;
  }
  if (fills.empty()) return absl::NotFoundError(absl::StrCat("nothing is pinned in ", Folder(instance)));
  return fills;
}

absl::StatusOr<std::vector<uint32_t>> PinnedPrograms(const std::string& instance) {
  std::vector<uint32_t> ids;
  for (const char* name : {CW_PROG_XDP, CW_PROG_TC}) {
    const maps::UniqueFd fd(bpf_obj_get((Folder(instance) + name).c_str()));
    if (!fd.ok()) return absl::ErrnoToStatus(errno, absl::StrCat("open the pinned program ", name));
    const auto info = dataplane::GetProgramInfo(fd.get());
    if (!info.ok()) return info.status();
    ids.push_back(info->id);
  }
  return ids;
}

}  // namespace cw::bench
