// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/breaker.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::control {
namespace {

constexpr int64_t kPointNs = 80'000'000;  // points closer than this are not kept
// What is overtaken for less than this costs no more NAKs than are borne anyway (soft-RoCE: 170 per second).
constexpr int64_t kLeastSpillNs = 20'000'000;

int64_t BreakerNs(double s) { return static_cast<int64_t>(s * 1e9); }

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void Breaker::See(const std::vector<BreakerFlow>& flows, int64_t now_ns) {
  const int64_t keep_ns = BreakerNs(rules_.past_s + rules_.settle_s + rules_.judge_s) + 1'000'000'000;
  for (auto& [key, history] : flows_) history.seen = false;
  for (const BreakerFlow& flow : flows) {
    History& history = flows_[flow.key];
    history.seen = true;
    history.answers_known = flow.answers_known;
    const Point now{.ns = now_ns, .bytes = flow.bytes, .acks = flow.acks, .naks = flow.naks};
    auto& points = history.points;
    if (!points.empty() && (now.bytes < points.back().bytes || now.naks < points.back().naks)) points.clear();
    if (points.empty() || !flow.in_flight || now.acks != points.back().acks) history.progress_ns = now_ns;
    // The newest is always there, and the one before it is far enough from the one before that.
    if (points.size() >= 2 && points.back().ns - points[points.size() - 2].ns < kPointNs) points.pop_back();
    points.push_back(now);
    while (points.size() > 2 && points[1].ns < now_ns - keep_ns) points.pop_front();
  }
  absl::erase_if(flows_, [](const auto& entry) { return !entry.second.seen; });
  absl::erase_if(trials_, [&](const auto& entry) {
    const auto history = flows_.find(entry.first);
    if (history == flows_.end()) return true;  // it ended: nothing more is known
    if (JudgeEarly(entry.second, now_ns)) return true;
    if (now_ns - entry.second.moved_ns < BreakerNs(rules_.settle_s + rules_.judge_s)) return false;
    if (auto verdict = JudgeGoodput(entry.second, history->second, now_ns)) Decide(*std::move(verdict), now_ns);
    return true;
  });
}

void Breaker::Moved(const BreakerMove& move, int64_t now_ns) {
  if (const auto trial = trials_.find(move.flow); trial != trials_.end()) {
    const auto history = flows_.find(move.flow);
    if (history != flows_.end() && !JudgeEarly(trial->second, now_ns) &&
        now_ns - trial->second.moved_ns > BreakerNs(rules_.settle_s + rules_.judge_s / 2)) {
      if (auto verdict = JudgeGoodput(trial->second, history->second, now_ns)) Decide(*std::move(verdict), now_ns);
    }
    trials_.erase(trial);
  }
  History& history = flows_[move.flow];
  const bool back =
      history.last && history.last->from == move.to && now_ns - history.moved_ns < BreakerNs(rules_.window_s);
  if (!back) trials_.insert({move.flow, {.move = move, .moved_ns = now_ns}});
  history.last = move;
  history.moved_ns = now_ns;
}

// True: the answers alone told that it is harmful.
bool Breaker::JudgeEarly(const Trial& trial, int64_t now_ns) {
  const auto history = flows_.find(trial.move.flow);
  if (history == flows_.end()) return false;
  auto verdict = JudgeAnswers(trial, history->second, now_ns);
  if (!verdict) return false;
  Decide(*std::move(verdict), now_ns);
  return true;
}

std::optional<Breaker::Point> Breaker::Between(const History& history, int64_t from_ns, int64_t to_ns) const {
  const Point* first = nullptr;
  const Point* last = nullptr;
  for (const Point& point : history.points) {
    if (point.ns <= from_ns || first == nullptr) first = &point;
    if (point.ns <= to_ns) last = &point;
  }
  if (first == nullptr || last == nullptr || last->ns <= first->ns) return std::nullopt;
  return Point{.ns = last->ns - first->ns,
               .bytes = last->bytes - first->bytes,
               .acks = last->acks - first->acks,
               .naks = last->naks - first->naks};
}

// What flows that were not moved within the window get per second meanwhile: the worst quarter's, because NAKs of a
// fabric that is full fall on a few.
double Breaker::OthersNakRate(const Trial& trial, int64_t now_ns) const {
  std::vector<double> rates;
  for (const auto& [key, history] : flows_) {
    if (key == trial.move.flow || !history.answers_known ||
        history.moved_ns >= trial.moved_ns - BreakerNs(rules_.window_s))
      continue;
    const auto span = Between(history, trial.moved_ns, now_ns);
    if (span) rates.push_back(static_cast<double>(span->naks) / (static_cast<double>(span->ns) / 1e9));
  }
  if (rates.empty()) return 0;
  const auto at = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() * 3 / 4);
  std::nth_element(rates.begin(), at, rates.end());
  return *at;
}

std::optional<BreakerVerdict> Breaker::JudgeAnswers(const Trial& trial, const History& history, int64_t now_ns) const {
  if (!history.answers_known) return std::nullopt;
  BreakerVerdict out{.move = trial.move, .harmful = true, .text = "", .evidence = {}};
  // From a point on that is behind it, as points usually lie; in any case before the rates are judged.
  const int64_t spill_ns = trial.move.spill_ns < kLeastSpillNs
                               ? 0
                               : std::min(trial.move.spill_ns + 2 * kPointNs, BreakerNs(rules_.settle_s));
  const double seconds = static_cast<double>(now_ns - trial.moved_ns - spill_ns) / 1e9;
  const auto since = Between(history, trial.moved_ns + spill_ns, now_ns);
  const auto past = Between(history, trial.moved_ns - BreakerNs(rules_.past_s), trial.moved_ns);
  if (since && seconds > 0) {
    const double own = past ? static_cast<double>(past->naks) / (static_cast<double>(past->ns) / 1e9) : 0;
    const double expected = std::max(own, OthersNakRate(trial, now_ns)) * seconds;
    const double naks = static_cast<double>(since->naks) - 1;  // the move's own
    out.evidence = {{"naks_since", absl::StrCat(since->naks)},
                    {"naks_expected", absl::StrFormat("%.1f", expected + 1)},
                    {"since_move_s", absl::StrFormat("%.2f", static_cast<double>(now_ns - trial.moved_ns) / 1e9)},
                    {"overtook_s", absl::StrFormat("%.2f", static_cast<double>(spill_ns) / 1e9)}};
    if (naks - expected >= rules_.naks_sure && naks - expected >= 3 * std::sqrt(expected)) {
      out.text = absl::StrFormat("%d NAKs in %.1f s after the move, %.1f were to be expected", since->naks, seconds,
                                 expected + 1);
      return out;
    }
  }
  const double still_s = static_cast<double>(now_ns - std::max(history.progress_ns, trial.moved_ns)) / 1e9;
  if (still_s < rules_.standstill_s) return std::nullopt;
  // Everybody stands still: it is not the move.
  const bool others_go = std::any_of(flows_.begin(), flows_.end(), [&](const auto& entry) {
    return entry.first != trial.move.flow && entry.second.answers_known && entry.second.points.size() > 1 &&
           now_ns - entry.second.progress_ns < BreakerNs(rules_.standstill_s) / 2;
  });
  if (!others_go && flows_.size() > 1) return std::nullopt;
  out.evidence.push_back({"standstill_s", absl::StrFormat("%.2f", still_s)});
  out.text = absl::StrFormat("nothing is acknowledged for %.1f s after the move", still_s);
  return out;
}

// By how much the rates of flows that were not moved within the window changed over the same times: the median.
std::optional<double> Breaker::OthersChange(const Trial& trial, int64_t now_ns) const {
  std::vector<double> changes;
  for (const auto& [key, history] : flows_) {
    if (key == trial.move.flow || history.moved_ns >= trial.moved_ns - BreakerNs(rules_.window_s)) continue;
    const auto before = Between(history, trial.moved_ns - BreakerNs(rules_.past_s), trial.moved_ns);
    const auto after = Between(history, trial.moved_ns + BreakerNs(rules_.settle_s), now_ns);
    if (!before || !after) continue;
    const double was = static_cast<double>(before->bytes) / (static_cast<double>(before->ns) / 1e9);
    if (was < rules_.min_bytes_per_s) continue;
    changes.push_back(static_cast<double>(after->bytes) / (static_cast<double>(after->ns) / 1e9) / was);
  }
  if (changes.empty()) return std::nullopt;
  return Median(std::move(changes));
}

// nullopt: nothing can be told.
std::optional<BreakerVerdict> Breaker::JudgeGoodput(const Trial& trial, const History& history, int64_t now_ns) const {
  const auto before = Between(history, trial.moved_ns - BreakerNs(rules_.past_s), trial.moved_ns);
  const auto after = Between(history, trial.moved_ns + BreakerNs(rules_.settle_s), now_ns);
  if (!before || !after || static_cast<double>(before->ns) < 0.5e9 * rules_.past_s) return std::nullopt;
  const double was = static_cast<double>(before->bytes) / (static_cast<double>(before->ns) / 1e9);
  const double is = static_cast<double>(after->bytes) / (static_cast<double>(after->ns) / 1e9);
  if (was < rules_.min_bytes_per_s) return std::nullopt;
  // A flow that sends nothing and waits for nothing has nothing to send: a pause of the job.
  if (after->bytes == 0 && now_ns - history.progress_ns < BreakerNs(rules_.standstill_s)) return std::nullopt;
  const std::optional<double> others = OthersChange(trial, now_ns);
  // The others' gain is no claim of this one: they may have gained by its leaving.
  const double expected = was * std::min(others.value_or(1), 1.0);
  BreakerVerdict out{.move = trial.move, .harmful = is < rules_.goodput_factor * expected, .text = "", .evidence = {}};
  out.evidence = {{"before_mbps", absl::StrFormat("%.1f", was * 8 / 1e6)},
                  {"after_mbps", absl::StrFormat("%.1f", is * 8 / 1e6)},
                  {"others_change", others ? absl::StrFormat("%.2f", *others) : "none"}};
  out.text = absl::StrFormat("%.1f Mbit/s after the move, %.1f before; flows that were not moved changed by %s",
                             is * 8 / 1e6, was * 8 / 1e6,
                             others ? absl::StrFormat("a factor of %.2f", *others) : std::string("what is not known"));
  return out;
}

void Breaker::Decide(BreakerVerdict verdict, int64_t now_ns) {
  judged_.push_back({.move = verdict.move, .ns = now_ns, .harmful = verdict.harmful});
  verdicts_.push_back(std::move(verdict));
}

int Breaker::Count(int64_t now_ns, bool harmful_only) const {
  return static_cast<int>(std::count_if(judged_.begin(), judged_.end(), [&](const Judged_& each) {
    return each.ns > now_ns - BreakerNs(rules_.window_s) && (each.harmful || !harmful_only);
  }));
}

std::vector<BreakerVerdict> Breaker::TakeVerdicts() { return std::exchange(verdicts_, {}); }

std::optional<BreakerTrip> Breaker::TakeTrip(int64_t now_ns) {
  while (!judged_.empty() && judged_.front().ns <= now_ns - BreakerNs(rules_.window_s)) judged_.pop_front();
  if (tripped_) return std::nullopt;
  BreakerTrip trip{.undo = {}, .judged = Judged(now_ns), .harmful = Harmful(now_ns), .text = ""};
  if (trip.harmful < rules_.harmful || trip.harmful <= rules_.harmful_share * trip.judged) return std::nullopt;
  trip.text = absl::StrFormat("%d of %d moves for balance within the last minute did harm", trip.harmful, trip.judged);
  std::set<FlowKey> undone;
  for (const auto& [flow, trial] : trials_) {  // newer than any verdict on the same flow
    trip.undo.push_back(trial.move);
    undone.insert(flow);
  }
  for (auto each = judged_.rbegin(); each != judged_.rend(); ++each) {
    if (undone.insert(each->move.flow).second && each->harmful) trip.undo.push_back(each->move);
  }
  tripped_ = true;
  tripped_ns_ = now_ns;
  trials_.clear();
  return trip;
}

bool Breaker::Rearmed(int64_t now_ns) {
  if (!tripped_ || rules_.hold_ns <= 0 || now_ns < tripped_ns_ + rules_.hold_ns) return false;
  Reset();
  return true;
}

void Breaker::Reset() {
  tripped_ = false;
  judged_.clear();
  trials_.clear();
}

}  // namespace cw::control
