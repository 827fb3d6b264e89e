// SPDX-License-Identifier: Apache-2.0
//
// Looks for what is wrong every second, and at most every 200 ms where paths die, come back or are suspected, and keeps
// what is found. A thread of its own. It copies of the live state only from hosts that told something new, a few at a
// time, so that agents' streams wait for milliseconds.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "userspace/fleet/alerts/alerts.h"
#include "userspace/fleet/drains/muting.h"
#include "userspace/fleet/findings/findings.h"
#include "userspace/fleet/jobs/acts.h"
#include "userspace/fleet/jobs/jobs.h"
#include "userspace/fleet/live/departed_nics.h"
#include "userspace/fleet/live/live_picture.h"
#include "userspace/fleet/main/drainer.h"
#include "userspace/fleet/main/fleet_metrics.h"
#include "userspace/fleet/main/incident_taker.h"
#include "userspace/fleet/main/muter.h"
#include "userspace/fleet/main/uplink_service.h"
#include "userspace/fleet/rules/rules_file.h"
#include "userspace/fleet/sla/sla.h"
#include "userspace/fleet/store/store.h"
#include "userspace/fleet/topology/fleet_file.h"
#include "userspace/fleet/topology/nic_places.h"

namespace cw::fleet {

class Finder {
 public:
  Finder(UplinkService& uplink, Store& store, Alerts& alerts, Drainer& drainer, Muter& muter, IncidentTaker& incidents,
         FleetFile file, const Rules& rules);
  ~Finder();
  FinderNumbers numbers();                     // any thread
  std::map<std::string, std::string> racks();  // host → rack; any thread

 private:
  void Run();
  bool End(absl::Duration wait);  // it ends; or it does not, and so much time passed
  void Count(absl::Duration took);
  void Resume();
  void Look();
  void CopyAll();
  void LookAtFabric(Picture& picture);
  std::vector<HostEvent> NewEvents(int64_t now_ns);
  void LookAtSlas(int64_t now_ns);
  void TellStanding(const std::vector<HostEvent>& stands);
  void LookAtStanding(int64_t now_ns);
  static HostWork RanksOf(const std::string& name, const LivePicture::Host& host);
  std::vector<HostWork> WorkNow() const;      // points into live_
  std::vector<HostWork> StandingNow() const;  // ranks and collectives that stand; none: nothing stands
  void NameJobs(std::vector<Finding>& changed, int64_t now_ns);
  bool LookAtActs(const Finding& finding, int64_t now_ns);  // whether there is news
  FlowWay WayOf(const FlowAct& act) const;
  void AddAffected(Finding& finding) const;  // the jobs that are known to cross it, and what agents did
  void Keep(const std::vector<Finding>& changed);
  void Complain(const absl::Status& status);

  UplinkService& uplink_;
  Store& store_;
  Alerts& alerts_;
  Drainer& drainer_;
  Muter& muter_;
  IncidentTaker& incidents_;
  LivePicture live_;
  const CauseRules causes_;
  Findings findings_;
  SlaWatch slas_;
  std::vector<SlaWord> sla_words_;  // as of slas_ns_
  int64_t slas_ns_ = 0;
  std::vector<StandingJob> standing_;  // as of standing_ns_
  int64_t standing_ns_ = 0;
  DepartedNics departed_;
  uint64_t changes_ = 0;  // of paths, when it looked last
  bool events_begun_ = false;
  uint64_t events_after_ = 0;
  struct Unkept {
    Finding finding;
    std::string muted_by;
  };
  std::map<uint64_t, Unkept> unkept_;                   // the store did not take them
  std::map<uint64_t, std::set<std::string>> affected_;  // jobs, of findings that go on
  int64_t named_ns_ = 0;                                // when these were looked at last
  ActBook acts_;
  std::map<uint64_t, std::vector<std::string>> did_before_;  // of findings that are older than acts_, from the store
  int64_t begun_ns_ = 0;
  MuteBook mutes_;
  std::string complaint_;

  std::mutex mutex_;  // of all below up to the thread
  FinderNumbers numbers_;
  std::map<std::string, std::string> racks_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace cw::fleet
