// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/checks.h"

namespace cw::api {
namespace {

cwfabric::v1::Check::Result ToProto(host::Check::Result result) {
  switch (result) {
    case host::Check::Result::kUnknown:
      return cwfabric::v1::Check::RESULT_UNKNOWN;
    case host::Check::Result::kOk:
      return cwfabric::v1::Check::RESULT_OK;
    case host::Check::Result::kWarn:
      return cwfabric::v1::Check::RESULT_WARN;
    case host::Check::Result::kFail:
      return cwfabric::v1::Check::RESULT_FAIL;
  }
  return cwfabric::v1::Check::RESULT_UNKNOWN;
}

}  // namespace

cwfabric::v1::DoctorReply ToProto(const std::vector<host::Check>& checks) {
  cwfabric::v1::DoctorReply reply;
  for (const host::Check& check : checks) {
    cwfabric::v1::Check& out = *reply.add_checks();
    out.set_name(check.name);
    out.set_result(ToProto(check.result));
    out.set_seen(check.seen);
    out.set_todo(check.todo);
  }
  return reply;
}

}  // namespace cw::api
