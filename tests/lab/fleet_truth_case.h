// SPDX-License-Identifier: Apache-2.0
//
// What was done to a lab, and what an operator would say of it: the answers that are right, whatever rules the fleet
// service has. And the judgement of what it said. Pure but for the clock of its callers. One thread.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cw::lab {

class TruthBed;

// One right answer: regular expressions that the cause matches, and a part of the scope.
struct Answer {
  std::string cause;
  std::string place;
};

struct TruthCase {
  std::string name;
  std::function<absl::Status(TruthBed&)> begin, end;
  std::vector<Answer> right;                          // any of these; none: nothing may be found
  bool needed = true;                                 // false: no finding at all is right, too
  absl::Duration limit = absl::Seconds(30);           // until the finding
  absl::Duration lasts = absl::Seconds(15);           // the fault, at least: what is found late is found in this time
  absl::Duration over_within = absl::Seconds(30);     // after mending; infinite: it rightly stays open
  std::function<absl::Status(TruthBed&)> while_open;  // once, after the finding; it goes on all the same
};

// A finding as cwctl has it.
struct Said {
  std::string id, cause, scope;
  bool open = false;
  int64_t end_ns = 0;
  absl::Time seen;  // first, by cwctl
};
// "link grey: link 10.1.0.1>10.0.0.1".
std::string Text(const Said& said);
std::vector<Said> SaidIn(const nlohmann::json& findings);
bool IsRight(const TruthCase& c, const Said& said);

// What came of a fault.
struct TruthRow {
  std::string name, group;
  std::string found;    // the right answer that came; "" = none did
  double found_s = -1;  // after the fault began
  std::string others;   // whatever else opened until the end of the quiet time after it; "" = nothing
  double over_s = -1;   // after mending; -1: not within its time
  std::string wrong;    // why this is not the truth; "" = it is
};
nlohmann::json ToJson(const TruthRow& row);
std::string TruthTable(const std::vector<TruthRow>& rows);

// Follows what is said while one or more faults are there at once, and tells each finding's owner.
class Judge {
 public:
  // `before`: all findings of before. Those that are open still are nobody's.
  Judge(std::vector<const TruthCase*> cases, const std::vector<Said>& before, absl::Time began);

  void Look(const std::vector<Said>& all, absl::Time now);
  bool AllFound() const;  // of the cases that need a finding
  void Mended(absl::Time now) { mended_ = now; }
  bool AllOver() const;  // nothing that counts is open, but what may stay so
  // One per case, in their order. What belongs to none is told with the first.
  std::vector<TruthRow> Rows(const std::string& group) const;

 private:
  struct Heard {
    Said said;
    std::string first;             // as it was when it was seen first, where it changed since
    int owner = -1;                // a case; −1: none
    absl::Time right_at, over_at;  // infinite future: never
    bool again = false;            // it was over before the fault
    bool ended_early = false;      // over while its fault was still there
  };
  int OwnerOf(const Said& said) const;
  TruthRow RowOf(size_t number, std::vector<std::string>& others) const;

  std::vector<const TruthCase*> cases_;
  std::map<std::string, int64_t> before_;  // id → end; 0: was open
  absl::Time began_, mended_ = absl::InfiniteFuture();
  std::map<std::string, Heard> heard_;
};

}  // namespace cw::lab
