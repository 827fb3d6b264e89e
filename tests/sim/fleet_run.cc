// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fleet_run.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cw::sim {
namespace {

using Kind = FleetFault::Kind;
using fleet::Cause;
constexpr int kWarmS = 25, kEndS = 45, kApartS = 15;
constexpr size_t kMostComplaints = 40, kMostOneOf = 4;

int SecondsOf(Kind kind) {
  switch (kind) {
    case Kind::kFlapping:
      return 260;
    case Kind::kCableFlaps:
    case Kind::kNicFlaps:
      return 380;  // twelve times, of 30 s at most
    case Kind::kClock:
    case Kind::kAgent:
    case Kind::kSettings:
    case Kind::kFrozen:
    case Kind::kRestart:
      return 100;
    default:
      return 60;
  }
}

bool IsDeath(Cause cause) {
  return cause == Cause::kLinkDead || cause == Cause::kSwitchDead || cause == Cause::kNicDown ||
         cause == Cause::kHostDown || cause == Cause::kRailDown || cause == Cause::kFlapping;
}

}  // namespace

bool FleetRun::Names(const FleetFault& fault, const fleet::Finding& f) const {
  if (fault.instead.contains({f.cause, f.scope})) return true;
  const bool dark = !shape_.Answers();
  if (dark && f.cause == Cause::kPathsDead && IsDeath(fault.cause)) return true;
  // Its place has no name for the service: then it is said to be where no switch answers.
  const auto kind = [](Cause cause) { return cause == Cause::kIncast ? Cause::kCongestion : cause; };
  if (dark && f.scope == "switches that answer no trace" && kind(f.cause) == kind(fault.cause)) return true;
  const bool one_of = (dark || f.one_of.size() <= kMostOneOf) &&
                      std::any_of(f.one_of.begin(), f.one_of.end(),
                                  [&](const std::string& scope) { return fault.scopes.contains(scope); });
  // Of things that cannot be told apart the cause is that of the first.
  if (one_of && IsDeath(f.cause) && IsDeath(fault.cause)) return true;
  return f.cause == fault.cause && (one_of || fault.scopes.contains(f.scope));
}

// What flaps is dead at times; a NIC's host, too, as far as the service can see.
bool FleetRun::IsTrueToo(const FleetFault& fault, const fleet::Finding& f) const {
  if (fault.also.contains({f.cause, f.scope})) return true;
  if (!Flaps(fault.kind)) return false;
  FleetFault dead = fault;
  dead.cause = fault.kind == Kind::kNicFlaps ? Cause::kNicDown : Cause::kLinkDead;
  return f.cause != Cause::kFlapping && Names(dead, f);
}

void FleetRun::Complain(const std::string& text) {
  if (result_.complaints.size() < kMostComplaints) result_.complaints.push_back(text);
}

void FleetRun::Take(const fleet::Finding& f) {
  const auto known = std::find_if(faults_.begin(), faults_.end(), [&](const Known& k) { return Names(k.fault, f); });
  if (known != faults_.end()) known->over = f.end_ns != 0;
  // A finding that goes on under another cause is one.
  if (f.end_ns != 0 || !seen_.insert({f.id, f.cause}).second) return;
  if (ids_.insert(f.id).second) ++score_.findings;
  if (known != faults_.end()) {
    if (!known->found) score_.seconds.push_back(SinceS());
    known->found = true;
    ++result_.right[static_cast<size_t>(f.cause)];
    return;
  }
  const bool true_too =
      std::any_of(faults_.begin(), faults_.end(), [&](const Known& k) { return IsTrueToo(k.fault, f); });
  if (true_too || world_->IsOfLiar(f.scope) || world_->IsOfLate(f)) return;
  ++score_.false_findings;
  ++result_.wrong[static_cast<size_t>(f.cause)];
  Complain(absl::StrFormat("%s: %s at %s, %.0f s after the fault: %s", what_, fleet::CauseName(f.cause), f.scope,
                           SinceS(), absl::StrJoin(f.evidence, "; ")));
}

void FleetRun::Pass(int seconds) {
  for (const int64_t end_ns = world_->now_ns() + seconds * kSecondNs; world_->now_ns() < end_ns;) {
    if (!world_->Tick() && world_->now_ns() < world_->service().findings().NextNs()) continue;
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<fleet::Finding> changed = world_->Look();
    result_.evaluate_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    ++result_.evaluations;
    for (const fleet::Finding& f : changed) Take(f);
  }
  result_.seconds += seconds;
}

// Two of kinds that are told by paths, at places that have nothing to do with each other.
void FleetRun::ChooseTwo() {
  constexpr Kind kKinds[] = {Kind::kOneDirection, Kind::kCable, Kind::kNic, Kind::kHost, Kind::kGrey};
  const auto first = static_cast<size_t>(seed_ % 5);
  const FleetFault one = world_->Choose(kKinds[first]);
  FleetFault two = one;
  for (int tries = 0; tries < 1000; ++tries) {
    two = world_->Choose(kKinds[(first + 1 + seed_ / 5 % 4) % 5]);
    std::set<int> both = one.edges;
    both.insert(two.edges.begin(), two.edges.end());
    if (both.size() == one.edges.size() + two.edges.size() && one.host != two.host) break;
  }
  faults_ = {{one}, {two}};
}

void FleetRun::ChooseTwoRacks() {
  FleetFault one = world_->Choose(Kind::kLeafPower), two = one;
  for (int tries = 0; tries < 1000 && two.hosts == one.hosts; ++tries) two = world_->Choose(Kind::kLeafPower);
  faults_ = {{one}, {two}};
}

void FleetRun::Choose(Kind kind) {
  world_ = std::make_unique<FleetWorld>(shape_, seed_);
  what_ = FaultName(kind);
  Pass(kWarmS);
  if (kind == Kind::kTwo) {
    ChooseTwo();
  } else if (kind == Kind::kTwoRacks) {
    ChooseTwoRacks();
  } else if (kind == Kind::kUplinks) {
    for (FleetFault& fault : world_->ChooseUplinks()) faults_.push_back({std::move(fault)});
  } else {
    faults_ = {{world_->Choose(kind)}};
  }
  what_ = absl::StrFormat("%s, %s%s, seed %d", FaultName(kind), shape_.name, shape_.liar ? ", with a liar" : "", seed_);
  for (const Known& k : faults_) absl::StrAppend(&what_, ", ", absl::StrJoin(k.fault.scopes, " or "));
  for (const Known& k : faults_) {
    if (k.fault.kind == Kind::kGrey) absl::StrAppendFormat(&what_, ", loss %.3f", k.fault.loss);
  }
}

void FleetRun::Judge(Kind kind) {
  if (kind == Kind::kHalfRestart) faults_[0].found = score_.false_findings == 0;  // there is nothing to be found
  if (kind == Kind::kRestart) faults_[0].found = faults_[0].found && !faults_[0].over;
}

FleetSimResult FleetRun::Do(Kind kind) {
  Choose(kind);
  begun_ns_ = world_->now_ns();
  if (kind == Kind::kBeforeStart) {  // the same world once more, and the link was dead before
    score_ = {};
    world_ = std::make_unique<FleetWorld>(shape_, seed_, faults_[0].fault.edges);
    seen_.clear();
    begun_ns_ = world_->now_ns();
  }
  for (const Known& k : faults_) {
    world_->Begin(k.fault);
    if (kind == Kind::kUplinks) Pass(kApartS);
  }
  Pass(SecondsOf(kind));
  Judge(kind);
  for (const Known& k : faults_) world_->End(k.fault);
  const std::vector<Known> judged = faults_;
  Pass(kEndS);
  for (size_t i = 0; i < faults_.size(); ++i) {
    ++score_.faults;
    if (!judged[i].found) Complain(absl::StrCat(what_, ": not found: ", absl::StrJoin(judged[i].fault.scopes, " or ")));
    score_.found += judged[i].found;
    score_.ended += judged[i].found && faults_[i].over;
  }
  result_.refused += world_->service().refused();
  result_.by_kind[static_cast<size_t>(kind)] = score_;
  result_.by_shape[shape_.name] = score_;
  return result_;
}

FleetSimResult FleetRun::Healthy(int seconds) {
  world_ = std::make_unique<FleetWorld>(shape_, seed_);
  what_ = "nothing is wrong";
  begun_ns_ = world_->now_ns();
  Pass(seconds);
  result_.refused += world_->service().refused();
  return result_;
}

}  // namespace cw::sim
