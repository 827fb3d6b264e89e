// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/path_loss.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cw::control {
namespace {

constexpr int kRunCounts = 2;  // losses of one run that count

// P(X >= k) of a Poisson variable, from above: the binomial tail with this mean is smaller for k above the mean.
double PoissonTail(double mean, int k) {
  if (k <= mean) return 1;
  double term = std::exp(-mean + k * std::log(mean) - std::lgamma(k + 1.0));
  double sum = 0;
  for (int i = k; term > 1e-30 && i < k + 200; term *= mean / ++i) sum += term;
  return sum;
}

// P(X >= k) of a binomial variable.
double BinomialTail(int n, double p, int k) {
  double sum = 0;
  for (int i = k; i <= n; ++i) {
    sum += std::exp(std::lgamma(n + 1.0) - std::lgamma(i + 1.0) - std::lgamma(n - i + 1.0) + i * std::log(p) +
                    (n - i) * std::log1p(-p));
  }
  return sum;
}

}  // namespace

void PairLoss::Slot::Add(bool was_lost) {
  run = was_lost ? run + 1 : 0;
  if (run > kRunCounts) return;
  for (size_t w = 0; w < kWindows.size(); ++w) {
    const auto length = static_cast<uint32_t>(kWindows[w]);
    if (rounds >= length && lost[(next - length) % kHistory]) --sum[w];
    sum[w] += was_lost ? 1 : 0;
  }
  lost[next % kHistory] = was_lost;
  ++next;
  rounds = std::min<uint32_t>(rounds + 1, kHistory);
  ++clean_rounds;
  clean_lost += was_lost ? 1 : 0;
}

int PairLoss::Slot::Rounds(size_t window) const { return std::min(static_cast<int>(rounds), kWindows[window]); }

void PairLoss::Forget(uint8_t slot) {
  slot_[slot] = Slot();
  lossy_ &= static_cast<uint16_t>(~(1u << slot));
}

void PairLoss::Take(const ProbeFates::Round& round) {
  const unsigned arrived = round.arrived & round.judged, lost = round.lost & round.judged;
  if (2 * std::popcount(arrived) <= std::popcount(static_cast<unsigned>(round.judged))) return;
  for (uint8_t s = 0; s < kMaxSlots; ++s) {
    const unsigned bit = 1u << s;
    if ((round.judged & bit) == 0) continue;
    // A path that was dead or is another one now: its history ended.
    if ((judged_ & bit) == 0 && (lossy_ & bit) == 0) slot_[s] = Slot();
    if (((arrived | lost) & bit) != 0) slot_[s].Add((lost & bit) != 0);
  }
  judged_ = round.judged;
}

double PairLoss::Others(size_t slot, size_t window) const {
  int lost = 0, rounds = 0;
  for (size_t s = 0; s < kMaxSlots; ++s) {
    if (s == slot || (judged_ >> s & 1) == 0 || (lossy_ >> s & 1) != 0) continue;
    lost += slot_[s].sum[window];
    rounds += slot_[s].Rounds(window);
  }
  return rounds > 0 ? static_cast<double>(lost) / rounds : 0;
}

// Paths that lost as many may have the same fault: they are no witnesses.
double PairLoss::FellHere(size_t slot, size_t window) const {
  const Slot& own = slot_[slot];
  int lost = 0, rounds = 0;
  for (size_t s = 0; s < kMaxSlots; ++s) {
    if (s == slot || (judged_ >> s & 1) == 0 || slot_[s].sum[window] >= own.sum[window]) continue;
    lost += slot_[s].sum[window];
    rounds += slot_[s].Rounds(window);
  }
  if (rounds == 0) return 1;
  const int here = own.Rounds(window);
  return BinomialTail(own.sum[window] + lost, static_cast<double>(here) / (here + rounds), own.sum[window]);
}

bool PairLoss::Lossy(uint8_t slot, Verdict& verdict) const {
  const Slot& s = slot_[slot];
  for (size_t w = 0; w < kWindows.size(); ++w) {
    const int rounds = s.Rounds(w), lost = s.sum[w];
    if (rounds < rules_.least_rounds || lost < rules_.least_lost || lost < rules_.limit * rounds) continue;
    double others = 0;
    for (size_t longer = w; longer < kWindows.size(); ++longer) others = std::max(others, Others(slot, longer));
    const double normal = std::max(rules_.normal, rules_.others_factor * others);
    if (PoissonTail(normal * rounds, lost) > rules_.chance || FellHere(slot, w) > rules_.fell_here) continue;
    verdict = {.slot = slot, .lossy = true, .lost = lost, .rounds = rounds, .others = others};
    return true;
  }
  return false;
}

bool PairLoss::Clean(uint8_t slot, Verdict& verdict) {
  Slot& s = slot_[slot];
  if (s.clean_rounds < rules_.clean_rounds) return false;
  const bool clean = s.clean_lost <= 2 * rules_.normal * rules_.clean_rounds;
  verdict = {.slot = slot, .lossy = false, .lost = s.clean_lost, .rounds = s.clean_rounds, .others = 0};
  s.clean_rounds = s.clean_lost = 0;
  return clean;
}

std::vector<PairLoss::Verdict> PairLoss::Judge() {
  std::vector<Verdict> changed;
  if (rules_.limit <= 0) return changed;
  for (uint8_t s = 0; s < kMaxSlots; ++s) {
    const auto bit = static_cast<uint16_t>(1u << s);
    if ((judged_ & bit) == 0) continue;
    Verdict verdict;
    if ((lossy_ & bit) == 0 ? !Lossy(s, verdict) : !Clean(s, verdict)) continue;
    changed.push_back(verdict);
    if (verdict.lossy) {
      lossy_ |= bit;
      slot_[s].clean_rounds = slot_[s].clean_lost = 0;
    } else {
      Forget(s);
    }
  }
  return changed;
}

double PairLoss::Share(uint8_t slot) const {
  const int rounds = slot_[slot].Rounds(kWindows.size() - 1);
  return rounds > 0 ? static_cast<double>(slot_[slot].sum.back()) / rounds : 0;
}

}  // namespace cw::control
