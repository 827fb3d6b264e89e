// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/localise.h"

#include <algorithm>
#include <cmath>

namespace cw::fleet {
namespace {

constexpr double kSurelyShown = 4;  // a path of which so many bad trials are to be expected is rarely clean by chance
constexpr double kUneven = 2;  // standard deviations: so many more paths are clean than one rate for all would leave

class Search {
 public:
  Search(const std::vector<Observation>& seen, const Components& components, const LocaliseRules& rules)
      : seen_(seen), components_(components), rules_(rules), place_(components.size(), -1), explained_(seen.size()) {
    Gather();
  }

  std::vector<Suspect> Run() {
    std::vector<Suspect> found;
    while (found.size() < rules_.most_suspects) {
      const int best = Best();
      if (best < 0) break;
      Candidate& c = candidates_[static_cast<size_t>(best)];
      Suspect suspect = Judge(c);
      if (suspect.component < 0) {
        c.out = true;
        continue;
      }
      FindAlike(suspect, c);
      Accept(suspect);
      c.out = true;
      found.push_back(std::move(suspect));
    }
    return found;
  }

 private:
  struct Candidate {
    int32_t component = -1;
    std::vector<uint32_t> over;  // observations, by host
    double trials = 0, bad = 0;  // of those that nothing explains yet
    bool out = false;
  };

  bool MayBe(int32_t c) const {
    const Component& component = components_.at(c);
    if (rules_.prior[static_cast<size_t>(component.part)] < 0) return false;
    if (rules_.lives != nullptr && rules_.lives->contains(c)) return false;
    return rules_.nic_links || component.part != Part::kLink || !component.at_nic;
  }

  // Only what a bad path needs can be the cause.
  void Gather() {
    for (const Observation& o : seen_) {
      if (o.bad <= 0) continue;
      for (const int32_t c : *o.needs) {
        if (place_[static_cast<size_t>(c)] >= 0 || !MayBe(c)) continue;
        place_[static_cast<size_t>(c)] = static_cast<int32_t>(candidates_.size());
        candidates_.push_back({.component = c});
      }
    }
    if (candidates_.empty()) return;
    for (uint32_t i = 0; i < seen_.size(); ++i) {
      for (const int32_t c : *seen_[i].needs) {
        const int32_t place = place_[static_cast<size_t>(c)];
        if (place < 0) continue;
        Candidate& candidate = candidates_[static_cast<size_t>(place)];
        candidate.over.push_back(i);
        candidate.trials += seen_[i].trials;
        candidate.bad += seen_[i].bad;
      }
    }
  }

  double Rate(double trials, double bad) const {
    return std::clamp(bad / std::max(trials, 1e-9), rules_.least_rate, rules_.most_rate);
  }
  double Gain(double trials, double bad) const {
    if (bad <= 0) return -1;
    const double rate = Rate(trials, bad);
    return bad * std::log(rate / rules_.error) + (trials - bad) * std::log((1 - rate) / (1 - rules_.error));
  }
  double Cost(int32_t c) const { return rules_.least_gain + rules_.prior[static_cast<size_t>(components_.at(c).part)]; }

  int Best() const {
    int best = -1;
    double most = 0;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const Candidate& c = candidates_[i];
      if (c.out) continue;
      const double gain = Gain(c.trials, c.bad) - Cost(c.component);
      if (gain > most) most = gain, best = static_cast<int>(i);
    }
    return best;
  }

  // Component −1: the hosts do not agree on it.
  Suspect Judge(const Candidate& c) const {
    struct Told {
      double trials = 0, bad = 0;
      uint32_t paths = 0, paths_bad = 0;
    };
    Suspect s{.rate = Rate(c.trials, c.bad), .trials = c.trials, .bad = c.bad};
    uint32_t surely = 0, clean = 0;
    double clean_expected = 0, clean_variance = 0;
    double agreement = 0, best_without = Gain(c.trials, c.bad);
    Told told;
    const auto end_host = [&] {
      if (told.paths == 0) return;
      ++s.hosts;
      s.hosts_bad += told.paths_bad > 0;
      agreement += static_cast<double>(told.paths_bad) / told.paths;
      best_without = std::min(best_without, Gain(c.trials - told.trials, c.bad - told.bad));
      told = {};
    };
    uint32_t host = UINT32_MAX;
    for (const uint32_t i : c.over) {
      const Observation& o = seen_[i];
      if (explained_[i]) continue;
      if (o.host != host) end_host();
      host = o.host;
      const bool bad = o.bad > 0;
      told.trials += o.trials;
      told.bad += o.bad;
      ++told.paths;
      told.paths_bad += bad;
      ++(bad ? s.paths_bad : s.paths_well);
      if (bad) s.explains.push_back(i);
      if (o.trials * s.rate >= kSurelyShown) ++surely, clean += !bad;
      const double by_chance = std::exp(-o.trials * s.rate);
      clean_expected += by_chance;
      clean_variance += by_chance * (1 - by_chance);
    }
    end_host();
    if (s.hosts == 0 || agreement / s.hosts < rules_.least_agreement) return {};
    if (surely > 0 && static_cast<double>(clean) / surely > rules_.most_contradicted) return {};
    if (rules_.even_alone && s.hosts_bad < 2 && s.paths_well > clean_expected + kUneven * std::sqrt(clean_variance))
      return {};
    if (rules_.without_best && s.hosts > 1 && best_without <= rules_.least_gain / 2) return {};
    s.component = c.component;
    return s;
  }

  // The same bad paths, and none that are well in one and not in the other. A switch all of whose paths share a cable
  // may live; what else is a part goes with its whole.
  void FindAlike(Suspect& suspect, const Candidate& chosen) const {
    if (suspect.explains.empty()) return;
    for (const int32_t other : *seen_[suspect.explains[0]].needs) {
      const int32_t place = place_[static_cast<size_t>(other)];
      if (place < 0 || other == chosen.component || GoesWith(chosen.component, other)) continue;
      const Candidate& c = candidates_[static_cast<size_t>(place)];
      if (c.out || c.trials != chosen.trials || c.bad != chosen.bad) continue;
      const bool all = std::all_of(suspect.explains.begin(), suspect.explains.end(), [&](uint32_t i) {
        return std::binary_search(seen_[i].needs->begin(), seen_[i].needs->end(), other);
      });
      if (all) suspect.alike.push_back(other);
    }
  }

  bool GoesWith(int32_t whole, int32_t part) const {
    if (components_.at(part).unseen && components_.at(whole).part == Part::kLink) return true;
    const bool cable = components_.at(whole).part == Part::kSwitch && components_.at(part).part == Part::kCable;
    return !cable && components_.Contains(whole, part);
  }

  void Accept(const Suspect& suspect) {
    for (const uint32_t i : suspect.explains) {
      explained_[i] = true;
      for (const int32_t c : *seen_[i].needs) {
        const int32_t place = place_[static_cast<size_t>(c)];
        if (place < 0) continue;
        candidates_[static_cast<size_t>(place)].trials -= seen_[i].trials;
        candidates_[static_cast<size_t>(place)].bad -= seen_[i].bad;
      }
    }
  }

  const std::vector<Observation>& seen_;
  const Components& components_;
  const LocaliseRules& rules_;
  std::vector<int32_t> place_;  // component → candidate
  std::vector<Candidate> candidates_;
  std::vector<bool> explained_;
};

}  // namespace

std::vector<Suspect> Localise(const std::vector<Observation>& seen, const Components& components,
                              const LocaliseRules& rules) {
  return Search(seen, components, rules).Run();
}

}  // namespace cw::fleet
