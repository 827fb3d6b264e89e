// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/ingest/translate_work.h"

#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/fleet/ingest/translate.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

namespace work_pb = cwfabric::v1;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMostHostBytes = 253, kMostProcessBytes = 64, kMostLabelBytes = 256;
constexpr uint32_t kMostQpn = 0xffffff;
constexpr int kMostRanks = 1 << 22;

// Cuts its words; false: a number in it is none.
bool Tame(Message& message, size_t most_bytes) {
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const bool one = !field->is_repeated();
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        const double value =
            one ? reflection->GetDouble(message, field) : reflection->GetRepeatedDouble(message, field, i);
        if (!std::isfinite(value)) return false;
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        const std::string text =
            one ? reflection->GetString(message, field) : reflection->GetRepeatedString(message, field, i);
        if (text.size() <= most_bytes) continue;
        one ? reflection->SetString(&message, field, CutUtf8(text, most_bytes))
            : reflection->SetRepeatedString(&message, field, i, CutUtf8(text, most_bytes));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Message* part =
            one ? reflection->MutableMessage(&message, field) : reflection->MutableRepeatedMessage(&message, field, i);
        if (!Tame(*part, most_bytes)) return false;
      }
    }
  }
  return true;
}

bool IsRank(int rank, int ranks) { return rank >= 0 && rank < ranks && ranks <= kMostRanks; }

class WorkTranslator {
 public:
  WorkTranslator(const work_pb::Batch& in, const WorkLimits& limits, WorkNames names,
                 const std::function<void(const std::string&)>& leave_out)
      : in_(in), limits_(limits), names_(names), leave_out_(leave_out) {}

  TranslatedWork Run() {
    WorkSample& s = out_.sample;
    s.from_ns = in_.from_ns();
    s.time_ns = in_.to_ns();
    for (const work_pb::FlowName& name : in_.definitions().flows()) Name(name);
    Each(in_.flows(), limits_.flows, "flows", [&](const auto& flow) { Flow(flow); });
    Each(in_.jobs(), limits_.jobs, "jobs", [&](const auto& job) { Job(job); });
    Each(in_.collectives(), limits_.collectives, "collectives", [&](const auto& c) { Collective(c); });
    if (Fits(in_.other_flows().bytes())) {
      s.other_flows = in_.other_flows().flows();
      s.other_bytes = in_.other_flows().bytes();
      s.other_retransmits = in_.other_flows().retransmits();
    }
    return std::move(out_);
  }

 private:
  template <typename Records, typename Take>
  void Each(const Records& records, int most, const char* what, const Take& take) {
    for (int i = 0; i < records.size(); ++i) {
      if (i >= most) {
        leave_out_(absl::StrCat("more than ", most, " ", what, " in a batch"));
      } else {
        take(records.Get(i));
      }
    }
  }

  // No interval has more bytes than any network.
  bool Fits(uint64_t bytes) const {
    const double seconds = static_cast<double>(in_.to_ns() - in_.from_ns()) / 1e9;
    if (static_cast<double>(bytes) <= limits_.bytes_per_s * seconds) return true;
    leave_out_("a flow with more bytes than any network brings in the interval");
    return false;
  }

  void Name(const work_pb::FlowName& in) {
    if (in.flow() == 0 || in.flow() > limits_.flow_numbers)
      return leave_out_(absl::StrCat("flow number ", in.flow(), "; 1 to ", limits_.flow_numbers));
    const std::optional<Addr> local = AddressOf(in.local()), remote = AddressOf(in.remote());
    if (!local || !remote) return leave_out_("a flow without both addresses");
    if (in.qpn() > kMostQpn || in.peer_qpn() > kMostQpn)
      return leave_out_("a queue pair's number of more than 24 bits");
    names_.flows[in.flow()] = {.local = *local,
                               .remote = *remote,
                               .qpn = in.qpn(),
                               .peer_qpn = in.peer_qpn(),
                               .pid = in.pid(),
                               .peer = CutUtf8(in.peer(), kMostHostBytes),
                               .process = CutUtf8(in.process(), kMostProcessBytes),
                               .label = CutUtf8(in.label(), kMostLabelBytes)};
  }

  void Flow(const work_pb::FlowRecord& in) {
    const auto name = names_.flows.find(in.flow());
    const auto path = names_.paths.find(in.path());
    if (name == names_.flows.end() || (in.path() != 0 && path == names_.paths.end())) {
      out_.undefined = true;
      return leave_out_(absl::StrCat("flow ", in.flow(), " or its path ", in.path(), " was never defined"));
    }
    if (!Fits(in.bytes())) return;
    absl::StatusOr<PackedSketch> delay = PackedSketch::Unpack(in.delay());
    if (!delay.ok()) return leave_out_(std::string(delay.status().message()));
    FlowSample flow{.name = name->second,
                    .bytes = in.bytes(),
                    .retransmits = in.retransmits(),
                    .ce = in.ce_marks(),
                    .cnps = in.cnps(),
                    .delay = *std::move(delay)};
    if (in.path() != 0) {
      flow.udp_port = static_cast<uint16_t>(path->second.udp_port());
      flow.hops = path->second.hops();
    }
    out_.sample.flows.push_back(std::move(flow));
  }

  void Job(const work_pb::Job& in) {
    if (in.ByteSizeLong() > limits_.job_bytes)
      return leave_out_(absl::StrCat("a job of ", in.ByteSizeLong(), " bytes; at most ", limits_.job_bytes));
    work_pb::Job job = in;
    if (job.id().empty() || !IsRank(job.rank(), job.ranks())) return leave_out_("a job without an id or a rank");
    if (!Tame(job, limits_.text_bytes)) return leave_out_("a job with a number that cannot be");
    out_.sample.jobs.push_back({absl::StrCat(job.id(), "/", job.pid(), "/", job.rank()), job.SerializeAsString()});
  }

  void Collective(const work_pb::Collective& in) {
    if (in.ByteSizeLong() > limits_.collective_bytes)
      return leave_out_(
          absl::StrCat("a collective of ", in.ByteSizeLong(), " bytes; at most ", limits_.collective_bytes));
    work_pb::Collective c = in;
    if (c.job_id().empty() || !IsRank(c.rank(), c.ranks())) return leave_out_("a collective without a job or a rank");
    if (!Tame(c, limits_.text_bytes)) return leave_out_("a collective with a number that cannot be");
    out_.sample.collectives.push_back(c.SerializeAsString());
  }

  const work_pb::Batch& in_;
  const WorkLimits& limits_;
  WorkNames names_;
  const std::function<void(const std::string&)>& leave_out_;
  TranslatedWork out_;
};

}  // namespace

TranslatedWork TranslateWork(const work_pb::Batch& batch, const WorkLimits& limits, WorkNames names,
                             const std::function<void(const std::string& reason)>& leave_out) {
  return WorkTranslator(batch, limits, names, leave_out).Run();
}

}  // namespace cw::fleet
