// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/ingest/translate.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "userspace/model/hops_id.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr size_t kMostReasons = 10;

absl::Status Refuse(const pb::Batch& batch, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("batch ", batch.sequence(), ": ", why));
}

// "": nothing.
std::string WhatIsWrongWithItsTime(const pb::Batch& batch, int64_t now_ns, const BatchLimits& limits) {
  if (batch.to_ns() < batch.from_ns()) return "an interval that ends before it begins";
  if (batch.to_ns() > now_ns + absl::ToInt64Nanoseconds(limits.ahead))
    return "from the future: see to the host's clock";
  if (batch.from_ns() < now_ns - absl::ToInt64Nanoseconds(limits.back)) return "older than what is kept of detail";
  return "";
}

bool Same(const pb::PathName& a, const pb::PathName& b) {
  return a.local() == b.local() && a.remote() == b.remote() && a.udp_port() == b.udp_port() &&
         a.reverse() == b.reverse() && a.hops() == b.hops();
}

StoredEvent Moved(StoredEvent event, int64_t to_ns, uint64_t by_ns) {
  event.time_ns = to_ns;
  event.bound_ns = std::max(event.bound_ns, by_ns);
  return event;
}

// With as much of its text and evidence as there is room for.
pb::FleetEvent ShortFormOf(const pb::FleetEvent& event, size_t bytes) {
  pb::FleetEvent shorter;
  shorter.set_time_ns(event.time_ns());
  shorter.set_bound_ns(event.bound_ns());
  pb::Event& out = *shorter.mutable_event();
  out.set_seq(event.event().seq());
  out.set_run(event.event().run());
  out.set_time_unix_ns(event.event().time_unix_ns());
  out.set_type(CutUtf8(event.event().type(), 64));
  out.set_severity(event.event().severity());
  out.set_slot(event.event().slot());
  out.set_to_slot(event.event().to_slot());
  out.set_dry(event.event().dry());
  out.set_text(CutUtf8(event.event().text(), bytes / 4));
  out.set_flow(CutUtf8(event.event().flow(), 256));
  out.set_peer(CutUtf8(event.event().peer(), 256));
  constexpr size_t kFrame = 8;  // of tags and lengths
  size_t used = shorter.ByteSizeLong() + kFrame;
  for (const pb::Evidence& evidence : event.event().evidence()) {
    used += evidence.ByteSizeLong() + kFrame;
    if (used > bytes) break;
    *out.add_evidence() = evidence;
  }
  return shorter;
}

class Translator {
 public:
  Translator(const pb::Batch& in, int64_t now_ns, const BatchLimits& limits, Names& names)
      : in_(in), now_ns_(now_ns), limits_(limits), names_(names) {}

  Translated Run() {
    out_.batch.host = in_.host();
    out_.batch.run = in_.run();
    out_.batch.sequence = in_.sequence();
    for (const pb::HopList& list : in_.definitions().hop_lists()) Hops(list);
    for (const pb::PathName& path : in_.definitions().paths()) Name(path);
    for (const pb::FleetEvent& event : in_.events()) Event(event);
    // What it says beside events would be of a time that nobody can ask for.
    if (!WhatIsWrongWithItsTime(in_, now_ns_, limits_).empty()) {
      LeaveOut(WhatIsWrongWithItsTime(in_, now_ns_, limits_));
      return std::move(out_);
    }
    for (const pb::PathRecord& path : in_.paths()) Path(path);
    Documents();
    Work();
    return std::move(out_);
  }

 private:
  void LeaveOut(const std::string& reason) {
    ++out_.records_left_out;
    if (out_.left_out.size() < kMostReasons) out_.left_out.push_back(reason);
  }

  void Hops(const pb::HopList& list) {
    HopList hops{.id = list.id()};
    if (list.address_size() > limits_.hops) return LeaveOut(absl::StrCat("a way of ", list.address_size(), " hops"));
    for (const std::string& bytes : list.address()) {
      const std::optional<Addr> addr = bytes.empty() ? Addr{} : AddressOf(bytes);
      if (!addr) return LeaveOut(absl::StrCat("a hop's address of ", bytes.size(), " bytes; 4 or 16"));
      hops.hops.push_back(*addr);
    }
    if (HopsId(hops.hops) != hops.id) return LeaveOut("a hop list whose name is not its own");
    if (names_.hop_lists.size() >= limits_.hop_lists) return LeaveOut("more hop lists than a host may have");
    names_.hop_lists.insert(hops.id);
    out_.batch.hop_lists.push_back(std::move(hops));
  }

  void Name(const pb::PathName& path) {
    if (path.path() > limits_.paths)
      return LeaveOut(absl::StrCat("path number ", path.path(), "; at most ", limits_.paths));
    if (!AddressOf(path.local()) || !AddressOf(path.remote())) return LeaveOut("a path without both addresses");
    if (path.udp_port() == 0 || path.udp_port() > 65535)
      return LeaveOut(absl::StrCat("a path by port ", path.udp_port()));
    if (path.hops() != 0 && !names_.hop_lists.contains(path.hops())) {
      out_.undefined = true;
      return LeaveOut("a path by hops that were never told");
    }
    // What is sent again defines nothing.
    const auto known = names_.paths.find(path.path());
    if (known != names_.paths.end() && Same(known->second, path)) return;
    if (++names_.defined > limits_.definitions) return LeaveOut("more paths than a run may define");
    names_.paths[path.path()] = path;
  }

  void Path(const pb::PathRecord& record) {
    const auto name = names_.paths.find(record.path());
    if (name == names_.paths.end()) {
      out_.undefined = true;
      return LeaveOut(absl::StrCat("path ", record.path(), " was never defined"));
    }
    const int64_t sent = int64_t{in_.usual_sent()} + record.sent_more();
    if (sent < 0 || sent > UINT32_MAX || record.lost() > sent) return LeaveOut("a path that lost more than it sent");
    if (!pb::PathState_IsValid(record.state())) return LeaveOut("a path's state that this release does not know");
    absl::StatusOr<PackedSketch> queue = PackedSketch::Unpack(record.queue());
    if (!queue.ok()) return LeaveOut(std::string(queue.status().message()));
    if (queue->Count() > static_cast<uint64_t>(sent)) return LeaveOut("more samples than probes were sent");
    const pb::PathName& n = name->second;
    PathSample s{
        .key = {*AddressOf(n.local()), *AddressOf(n.remote()), static_cast<uint16_t>(n.udp_port()), n.reverse()}};
    s.time_ns = in_.to_ns();
    s.state = record.state() == pb::PATH_STATE_UNSPECIFIED ? PathState::kUp : static_cast<PathState>(record.state());
    s.hops = n.hops();
    s.base_ns = record.base_ns();
    s.sent = static_cast<uint32_t>(sent);
    s.lost = record.lost();
    s.silent_ms = record.silent_ms();
    s.heard = record.heard();
    s.largest_bytes = record.largest_bytes();
    s.full_size = in_.sizes_asked() && !n.reverse() && s.largest_bytes == 0 && !record.size_unknown();
    s.queue = *std::move(queue);
    out_.batch.paths.push_back(std::move(s));
  }

  // An event is never lost for its time: one that cannot be is put at its batch's end, or now, and its bound says so.
  void Event(const pb::FleetEvent& event) {
    StoredEvent e{.host = in_.host(), .run = in_.run(), .seq = event.event().seq(), .bound_ns = event.bound_ns()};
    const int64_t slack = absl::ToInt64Nanoseconds(limits_.back);
    const int64_t oldest = now_ns_ - absl::ToInt64Nanoseconds(limits_.events_back);
    const int64_t newest = now_ns_ + absl::ToInt64Nanoseconds(limits_.ahead);
    e.time_ns = event.time_ns();
    if (in_.to_ns() < oldest || in_.to_ns() > newest) {
      const __int128 off = static_cast<__int128>(now_ns_) - event.time_ns();
      e = Moved(std::move(e), now_ns_, static_cast<uint64_t>(std::min<__int128>(off < 0 ? -off : off, INT64_MAX)));
    } else if (event.time_ns() > in_.to_ns() + slack || event.time_ns() < in_.to_ns() - slack) {
      e = Moved(std::move(e), in_.to_ns(), static_cast<uint64_t>(slack));
    }
    e.type = CutUtf8(event.event().type(), 64);
    e.severity = static_cast<int>(event.event().severity());
    e.payload = event.SerializeAsString();
    if (e.seq == 0) return LeaveOut("an event without a number");
    if (e.payload.size() > limits_.text_bytes) {
      LeaveOut(absl::StrCat("evidence of an event of ", e.payload.size(), " bytes"));
      e.payload = ShortFormOf(event, limits_.text_bytes).SerializeAsString();
    }
    out_.batch.events.push_back(std::move(e));
  }

  void Documents() {
    const auto keep = [&](const std::string& kind, const std::string& bytes) {
      out_.batch.documents.push_back({kind, in_.to_ns(), bytes});
    };
    if (in_.has_inventory()) keep("inventory", in_.inventory().SerializeAsString());
    if (in_.has_clock()) keep("clock", in_.clock().SerializeAsString());
  }

  void Work() {
    TranslatedWork work = TranslateWork(in_, limits_.work, {.paths = names_.paths, .flows = names_.flows},
                                        [this](const std::string& reason) { LeaveOut(reason); });
    out_.undefined = out_.undefined || work.undefined;
    out_.batch.work = std::move(work.sample);
  }

  const pb::Batch& in_;
  const int64_t now_ns_;
  const BatchLimits& limits_;
  Names& names_;
  Translated out_;
};

}  // namespace

std::optional<Addr> AddressOf(const std::string& bytes) {
  if (bytes.size() == 4) {
    uint32_t v4 = 0;
    for (const char c : bytes) v4 = v4 << 8 | static_cast<uint8_t>(c);
    return Addr::FromV4(v4);
  }
  if (bytes.size() == 16) return Addr::FromBytes(reinterpret_cast<const uint8_t*>(bytes.data()));
  return std::nullopt;
}

absl::Status CheckName(const pb::Batch& batch, const std::string& host) {
  if (batch.host() != host) return absl::PermissionDeniedError(absl::StrCat(host, " may not speak for another host"));
  if (batch.run() == 0 || batch.sequence() == 0) return Refuse(batch, "no run or no sequence");
  if (batch.sequence() > uint64_t{1} << 62) return Refuse(batch, "a sequence that no run reaches");
  return absl::OkStatus();
}

absl::Status CheckBatch(const pb::Batch& batch, int64_t now_ns, const BatchLimits& limits) {
  const auto refuse = [&](const std::string& why) { return Refuse(batch, why); };
  if (batch.ByteSizeLong() > limits.bytes)
    return refuse(absl::StrCat("more than ", limits.bytes, " bytes; send smaller ones"));
  if (!batch.calm_paths().empty())
    return refuse("calm paths that cannot be read, or too many: its sender is of another release or lies");
  const int most = std::max({batch.paths_size(), batch.flows_size(), batch.events_size(), batch.jobs_size(),
                             batch.collectives_size(), batch.definitions().paths_size(),
                             batch.definitions().hop_lists_size(), batch.definitions().flows_size()});
  if (most > limits.records) return refuse(absl::StrCat("more than ", limits.records, " records of a kind"));
  const std::string time = WhatIsWrongWithItsTime(batch, now_ns, limits);
  if (!time.empty() && batch.events_size() == 0) return refuse(time);
  return absl::OkStatus();
}

Translated Translate(const pb::Batch& batch, int64_t now_ns, const BatchLimits& limits, Names& names) {
  return Translator(batch, now_ns, limits, names).Run();
}

}  // namespace cw::fleet
