// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/audit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/model/printable.h"
#include "userspace/model/utf8.h"

namespace cw::api {
namespace {

constexpr size_t kLongestRequest = 300;

std::string Shortened(const std::string& request) {
  return request.size() <= kLongestRequest ? request : absl::StrCat(CutUtf8(request, kLongestRequest), "…");
}

ApiEvent Told(const Caller& caller, absl::string_view call, const std::string& request, const std::string& outcome) {
  ApiEvent event;
  event.type = "audit";
  const std::string role(RoleName(caller.role)), name(call);
  event.text = absl::StrFormat("%s (%s, role %s): %s%s%s: %s", caller.name, caller.via, role, name,
                               request.empty() ? "" : " ", Shortened(request), outcome);
  event.evidence = {{"by", caller.name}, {"role", role}, {"via", caller.via}, {"call", name}};
  if (!request.empty()) event.evidence.emplace_back("request", Shortened(request));
  return event;
}

}  // namespace

ApiEvent CallMade(const Caller& caller, absl::string_view call, const std::string& request,
                  const absl::Status& result) {
  const std::string message(result.message());
  ApiEvent event = Told(caller, call, request, result.ok() ? "done" : "allowed, but failed: " + message);
  event.evidence.emplace_back("outcome", result.ok() ? "allowed" : "failed");
  if (!result.ok()) event.evidence.emplace_back("error", message);
  return event;
}

acts::Act ActOf(const Caller& caller, absl::string_view call, const std::string& request, const absl::Status& result) {
  constexpr size_t kLongest = 4096;
  return {.by = Printable(caller.name),
          .role = std::string(RoleName(caller.role)),
          .via = Printable(caller.via),
          .what = std::string(call),
          .request = CutUtf8(request, kLongest),
          .outcome = result.ok()                        ? "allowed"
                     : absl::IsPermissionDenied(result) ? "refused"
                                                        : "failed",
          .error = std::string(result.message())};
}

ApiEvent CallRefused(const Caller& caller, absl::string_view call, const std::string& request, const std::string& why,
                     uint64_t untold) {
  std::string outcome = "refused: " + why;
  if (untold > 0) absl::StrAppend(&outcome, "; ", untold, " more refusals were not told");
  ApiEvent event = Told(caller, call, request, outcome);
  event.alert = true;
  event.evidence.insert(event.evidence.end(), {{"outcome", "refused"}, {"error", why}});
  if (untold > 0) event.evidence.emplace_back("untold", absl::StrCat(untold));
  return event;
}

std::optional<uint64_t> RefusalLimiter::Tell(const std::string& who, absl::Time now) {
  const std::lock_guard lock(mutex_);
  const bool known = buckets_.count(who) != 0 || buckets_.size() < most_callers_;
  auto [found, fresh] = buckets_.try_emplace(known ? who : "");
  Bucket& bucket = found->second;
  if (fresh) bucket.at = now;
  bucket.tokens = std::min(kBurst, bucket.tokens + kPerSecond * std::max(absl::ToDoubleSeconds(now - bucket.at), 0.0));
  bucket.at = now;
  if (bucket.tokens < 1) {
    ++bucket.untold;
    return std::nullopt;
  }
  bucket.tokens -= 1;
  const uint64_t untold = bucket.untold;
  bucket.untold = 0;
  return untold;
}

}  // namespace cw::api
