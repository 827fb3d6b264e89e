// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/views/view_words.h"

#include "maps/abi.h"

namespace cw::agent {

namespace v1 = api::v1;

v1::PathState StateOf(uint8_t state) {
  switch (state) {
    case CW_SLOT_UP:
      return v1::PATH_STATE_UP;
    case CW_SLOT_SUSPECT:
      return v1::PATH_STATE_SUSPECT;
    case CW_SLOT_DEAD:
      return v1::PATH_STATE_DEAD;
    case CW_SLOT_NEW:
      return v1::PATH_STATE_NEW;
    default:
      return v1::PATH_STATE_UNSPECIFIED;
  }
}

v1::Mode ToApi(Mode mode) {
  switch (mode) {
    case Mode::kOff:
      return v1::MODE_OFF;
    case Mode::kObserve:
      return v1::MODE_OBSERVE;
    case Mode::kProtect:
      return v1::MODE_PROTECT;
    case Mode::kOptimize:
      return v1::MODE_OPTIMIZE;
  }
  return v1::MODE_UNSPECIFIED;
}

v1::Allow ToApi(Allow allow) {
  switch (allow) {
    case Allow::kOff:
      return v1::ALLOW_OFF;
    case Allow::kObserve:
      return v1::ALLOW_OBSERVE;
    case Allow::kAct:
      return v1::ALLOW_ACT;
  }
  return v1::ALLOW_MODE;
}

const char* TransportName(uint8_t transport) {
  switch (transport) {
    case 0:
      return "RC";
    case 1:
      return "UC";
    case 2:
      return "RD";
    case 3:
      return "UD";
    case 5:
      return "XRC";
    default:
      return "other";
  }
}

v1::FabricHashing ToApi(probe::Hashing hashing) {
  switch (hashing) {
    case probe::Hashing::kPorts:
      return v1::FABRIC_HASHING_PORTS;
    case probe::Hashing::kSinglePath:
      return v1::FABRIC_HASHING_SINGLE;
    case probe::Hashing::kTtl:
      return v1::FABRIC_HASHING_TTL;
    case probe::Hashing::kQpn:
      return v1::FABRIC_HASHING_QPN;
    case probe::Hashing::kSprayed:
      return v1::FABRIC_HASHING_SPRAYED;
    case probe::Hashing::kUnknown:
      break;
  }
  return v1::FABRIC_HASHING_UNKNOWN;
}

host::Hashing HostHashing(v1::FabricHashing hashing) {
  switch (hashing) {
    case v1::FABRIC_HASHING_QPN:
      return host::Hashing::kQpn;
    case v1::FABRIC_HASHING_TTL:
      return host::Hashing::kTtl;
    case v1::FABRIC_HASHING_SPRAYED:
      return host::Hashing::kSprayed;
    case v1::FABRIC_HASHING_PORTS:
      return host::Hashing::kPorts;
    case v1::FABRIC_HASHING_SINGLE:
      return host::Hashing::kSinglePath;
    default:
      return host::Hashing::kUnknown;
  }
}

v1::Check::Result ToApi(host::Check::Result result) {
  switch (result) {
    case host::Check::Result::kOk:
      return v1::Check::RESULT_OK;
    case host::Check::Result::kWarn:
      return v1::Check::RESULT_WARN;
    case host::Check::Result::kFail:
      return v1::Check::RESULT_FAIL;
    case host::Check::Result::kUnknown:
      break;
  }
  return v1::Check::RESULT_UNKNOWN;
}

v1::Event ToApi(const telemetry::Event& event) {
  v1::Event out;
  out.set_seq(event.seq);
  out.set_run(event.run);
  out.set_time_unix_ns(event.time_unix_ns);
  out.set_type(event.type);
  out.set_severity(static_cast<v1::Severity>(event.severity));
  out.set_text(event.text);
  out.set_flow(event.flow);
  out.set_peer(event.peer);
  out.set_slot(event.slot);
  out.set_to_slot(event.to_slot);
  out.set_dry(event.dry);
  for (const auto& [name, value] : event.evidence) {
    v1::Evidence* evidence = out.add_evidence();
    evidence->set_name(name);
    evidence->set_value(value);
  }
  return out;
}

void FillDelay(const telemetry::Sketch& sketch, api::v1::Delay* out) {
  out->set_samples(sketch.count());
  if (sketch.count() == 0) return;
  out->set_min_ns(static_cast<double>(sketch.min_ns()));
  out->set_p50_ns(sketch.QuantileNs(0.5));
  out->set_p99_ns(sketch.QuantileNs(0.99));
  out->set_max_ns(static_cast<double>(sketch.max_ns()));
  out->set_mean_ns(sketch.MeanNs());
}

}  // namespace cw::agent
