// SPDX-License-Identifier: Apache-2.0
#include "userspace/replay/format.h"

#include <zlib.h>

#include "absl/strings/str_cat.h"
#include "userspace/model/bytes.h"

namespace cw::replay {
namespace {

using control::Decision;
using control::Finding;
using control::FlowObservation;
using control::Move;
using control::Observation;
using control::PairObservation;
using control::PathObservation;

constexpr int64_t kMostNs = int64_t{1} << 61;
constexpr int kMostSamples = 1 << 28;

// The bindings name every member: one that is added does not compile here, and needs another version of the format.

template <typename Archive>
void Code(Archive& ar, PairKey& key) {
  ar.Address(key.local);
  ar.Address(key.remote);
}

template <typename Archive>
void Code(Archive& ar, FlowKey& key) {
  ar.Address(key.src);
  ar.Address(key.dst);
  ar.Number(key.dqpn);
}

// Declared first: lists of any of them follow one another.
template <typename Archive>
void Code(Archive& ar, uint64_t& link);
template <typename Archive>
void Code(Archive& ar, std::pair<std::string, std::string>& evidence);
template <typename Archive>
void Code(Archive& ar, PathObservation& path);
template <typename Archive>
void Code(Archive& ar, FlowObservation& flow);
template <typename Archive>
void Code(Archive& ar, PairObservation& pair);
template <typename Archive>
void Code(Archive& ar, Move& move);
template <typename Archive>
void Code(Archive& ar, Finding& finding);
template <typename Archive>
void Code(Archive& ar, control::Reprobe& reprobe);
template <typename Archive>
void Code(Archive& ar, control::Settled& settled);

// A list of things of at least so many bytes each.
template <typename Archive, typename T>
void CodeList(Archive& ar, std::vector<T>& list, size_t least_each) {
  const uint32_t count = ar.Count(list.size(), least_each);
  if constexpr (Archive::kTakes) {
    list.clear();
    for (uint32_t i = 0; i < count && ar.ok(); ++i) Code(ar, list.emplace_back());
  } else {
    for (T& entry : list) Code(ar, entry);
  }
}

template <typename Archive>
void Code(Archive& ar, uint64_t& link) {
  ar.Number(link);
}

template <typename Archive>
void Code(Archive& ar, PathObservation& path) {
  auto& [slot, usable, queue_samples, queue_ns, base_ns, ecn_samples, marked, links] = path;
  ar.Number(slot);
  ar.Bool(usable);
  ar.Within(queue_samples, 0, kMostSamples);
  ar.Number(queue_ns);
  ar.Number(base_ns);
  ar.Within(ecn_samples, 0, kMostSamples);
  ar.Within(marked, 0, ecn_samples);
  CodeList(ar, links, sizeof(uint64_t));
}

template <typename Archive>
void Code(Archive& ar, FlowObservation& flow) {
  auto& [key, slot, bytes, cnps, locked, at_rest] = flow;
  Code(ar, key);
  ar.Number(slot);
  ar.Number(bytes);
  ar.Number(cnps);
  ar.Bool(locked);
  ar.Bool(at_rest);
}

template <typename Archive>
void Code(Archive& ar, PairObservation& pair) {
  auto& [key, table_valid, paths, flows] = pair;
  Code(ar, key);
  ar.Bool(table_valid);
  CodeList(ar, paths, 34);
  CodeList(ar, flows, 55);
}

template <typename Archive>
void Code(Archive& ar, Observation& seen) {
  auto& [now_ns, window_ns, line_rate_bps, pairs, reprobed] = seen;
  ar.Within(now_ns, -kMostNs, kMostNs);
  ar.Within(window_ns, -kMostNs, kMostNs);
  ar.Number(line_rate_bps);
  CodeList(ar, pairs, 41);
  CodeList(ar, reprobed, 113);
}

template <typename Archive>
void Code(Archive& ar, control::FreshLook& look) {
  auto& [slot, usable, samples, queue_ns, base_ns] = look;
  ar.Number(slot);
  ar.Bool(usable);
  ar.Within(samples, 0, kMostSamples);
  ar.Number(queue_ns);
  ar.Number(base_ns);
}

template <typename Archive>
void Code(Archive& ar, control::Reprobe& reprobe) {
  auto& [pair, flow, stays, candidates] = reprobe;
  Code(ar, pair);
  Code(ar, flow);
  ar.Bool(stays);
  for (control::FreshLook& look : candidates) Code(ar, look);
}

template <typename Archive>
void Code(Archive& ar, control::Settled& settled) {
  auto& [pair, flow, first, to] = settled;
  Code(ar, pair);
  Code(ar, flow);
  ar.Number(first);
  ar.Number(to);
}

template <typename Archive>
void Code(Archive& ar, std::pair<std::string, std::string>& evidence) {
  ar.Text(evidence.first);
  ar.Text(evidence.second);
}

template <typename Archive>
void Code(Archive& ar, Move& move) {
  auto& [pair, flow, from, to, force, gain, why, evidence, second, second_gain, queue_ns, second_queue_ns] = move;
  Code(ar, pair);
  Code(ar, flow);
  ar.Number(from);
  ar.Number(to);
  ar.Bool(force);
  ar.Number(gain);
  ar.Text(why);
  CodeList(ar, evidence, 8);
  ar.Number(second);
  ar.Number(second_gain);
  ar.Number(queue_ns);
  ar.Number(second_queue_ns);
}

template <typename Archive>
void Code(Archive& ar, Finding& finding) {
  auto& [kind, pair, flow, text, evidence] = finding;
  auto number = static_cast<uint8_t>(kind);
  ar.Within(number, uint8_t{0}, static_cast<uint8_t>(Finding::Kind::kMoveConfirmed));
  kind = static_cast<Finding::Kind>(number);
  Code(ar, pair);
  Code(ar, flow);
  ar.Text(text);
  CodeList(ar, evidence, 8);
}

template <typename Archive>
void Code(Archive& ar, Decision& decided) {
  auto& [moves, findings, settled] = decided;
  CodeList(ar, moves, 112);
  CodeList(ar, findings, 77);
  CodeList(ar, settled, 70);
}

template <typename Archive>
void Code(Archive& ar, Head& head) {
  auto& [host, version, started_unix_ns, memory] = head;
  ar.Text(host);
  ar.Text(version);
  ar.Number(started_unix_ns);
  ar.Text(memory);
}

absl::Status Senseless(const ByteReader& in, absl::string_view payload) {
  return absl::InvalidArgumentError(
      absl::StrCat("byte ", in.at(), " of its ", payload.size(), in.ok() ? " should be the last" : " makes no sense"));
}

}  // namespace

std::string FileHead() {
  ByteWriter out;
  for (const char c : absl::string_view(kMagic)) out.Number(c);
  out.Number(kVersion);
  return out.Take();
}

uint32_t RecordCrc(uint32_t kind, absl::string_view payload) {
  const uint32_t words[] = {kind, static_cast<uint32_t>(payload.size())};
  uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(words), sizeof(words));
  crc = crc32_z(crc, reinterpret_cast<const Bytef*>(payload.data()), payload.size());
  return static_cast<uint32_t>(crc);
}

std::string Record(RecordKind kind, const std::string& payload) {
  ByteWriter out;
  out.Number(static_cast<uint32_t>(kind));
  out.Number(static_cast<uint32_t>(payload.size()));
  out.Number(RecordCrc(kind, payload));
  return out.Take() + payload;
}

std::string Encode(const Head& head) {
  ByteWriter out;
  Head copy = head;  // naming the members takes references
  Code(out, copy);
  return out.Take();
}

std::string Encode(const Decision& decided) {
  ByteWriter out;
  Decision copy = decided;
  Code(out, copy);
  return out.Take();
}

std::string Encode(const Observation& seen, const Decision& decided) {
  ByteWriter out;
  Observation copy = seen;
  Code(out, copy);
  return out.Take() + Encode(decided);
}

absl::StatusOr<Head> DecodeHead(absl::string_view payload) {
  ByteReader in(payload);
  Head head;
  Code(in, head);
  if (!in.done()) return Senseless(in, payload);
  return head;
}

absl::StatusOr<Window> DecodeWindow(absl::string_view payload) {
  ByteReader in(payload);
  Window window;
  Code(in, window.seen);
  Code(in, window.decided);
  if (!in.done()) return Senseless(in, payload);
  return window;
}

}  // namespace cw::replay
