// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/blind_notes.h"

#include <string>
#include <vector>

#include "absl/strings/str_format.h"

namespace cw::agent {
namespace {

constexpr int64_t kAnswersNs = 10'000'000'000;

}  // namespace

bool BlindNotes::IsBlind(const PairState& pair) const {
  const NicState* nic = NicOf(nics_, pair.ifindex);
  return nic != nullptr && !nic->removed && (nic->programs_gone || !nic->hooks_trouble.empty());
}

// In turn, so that a host with thousands of peers floods nobody.
void BlindNotes::Send() {
  for (const auto& [index, pair] : pairs_) {
    // It answers, and its agent does not repeat its word: another one runs by now, which measures.
    if (pair->peer_blind_ns == 0 || pair->last_reply_ns < pair->peer_blind_ns + kAnswersNs) continue;
    pair->peer_blind_ns = 0;
    Log(*pair, true);
  }
  std::vector<uint32_t> after, before;  // the last one served
  for (const auto& [index, pair] : pairs_) {
    if (IsBlind(*pair) || noted_.contains(index)) (index > last_ ? after : before).push_back(index);
  }
  after.insert(after.end(), before.begin(), before.end());
  if (after.size() > kMostPerLook) after.resize(kMostPerLook);
  for (const uint32_t index : after) {
    const PairState& pair = *FindIn(pairs_, index);
    const bool blind = IsBlind(pair);
    Send(pair, !blind);
    blind ? (void)noted_.insert(index) : (void)noted_.erase(index);
    last_ = index;
  }
}

// By the pair itself, and by another NIC of this host: a firewall may let nothing leave by the first.
void BlindNotes::Send(const PairState& pair, bool measures) {
  const probe::NicMeasures note{.nic = pair.key.local, .measures = measures};
  mail_.Send(pair.index, note);
  for (const auto& [index, other] : pairs_) {
    if (other->peer != pair.peer || other->ifindex == pair.ifindex || IsBlind(*other)) continue;
    return mail_.Send(index, note);
  }
}

// Only of a NIC of the host that says so.
void BlindNotes::OnNote(const PairState& via, const probe::NicMeasures& note, int64_t now_ns) {
  const PairState* changed = nullptr;
  for (auto& [index, pair] : pairs_) {
    if (pair->peer != via.peer || pair->key.remote != note.nic) continue;
    if (pair->PeerIsBlind(now_ns) == note.measures) changed = pair.get();
    pair->peer_blind_ns = note.measures ? 0 : now_ns;
  }
  if (changed != nullptr) Log(*changed, note.measures);
}

void BlindNotes::Log(const PairState& pair, bool measures) {
  const std::string nic = pair.key.remote.ToString();
  telemetry::Event event{.type = "path", .severity = telemetry::Severity::kNotice, .peer = pair.peer};
  event.text = measures ? absl::StrFormat("%s: its agent measures its NIC %s again", pair.peer, nic)
                        : absl::StrFormat(
                              "%s: its agent says that its programs do not see the packets of its NIC %s; its own "
                              "probes do not leave, and no path to it is blamed",
                              pair.peer, nic);
  event.evidence = {{"remote_nic", nic}};
  events_.Log(std::move(event));
}

}  // namespace cw::agent
