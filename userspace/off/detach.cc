// SPDX-License-Identifier: Apache-2.0
#include "userspace/off/detach.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <utility>

#include "maps/folder.h"
#include "maps/unique_fd.h"
#include "userspace/acts/acts_file.h"
#include "userspace/dataplane/tcx_query.h"
#include "userspace/off/control.h"
#include "userspace/off/kernel.h"
#include "userspace/off/tc.h"

namespace cw::off {
namespace {

constexpr char kLock[] = "lock";

std::string Why(int error) {
  return error == EPERM || error == EACCES ? std::string(strerror(error)) + "; run as root" : strerror(error);
}

bool UsesAny(const Program& program, const std::set<uint32_t>& maps) {
  return std::any_of(program.maps.begin(), program.maps.end(), [&](uint32_t map) { return maps.contains(map); });
}

// Programs in our place of clsact.
class Filters {
 public:
  Filters(const Options& options, Route& route, Report& report) : options_(options), route_(route), report_(report) {}

  void Remove(const std::string& instance, const Interface& interface, bool egress,
              const std::function<bool(const Program&)>& ours) {
    const char* what = egress ? "tc egress" : "tc ingress";
    const auto left = [&](const std::string& why) {
      report_.left.push_back({instance, what, interface.name, interface.ifindex, why});
    };
    uint32_t id = 0;
    if (const int e = route_.FilterInOurPlace(interface.ifindex, egress, &id); e != 0 || id == 0) return;
    Program program;
    if (const int e = ReadProgram(id, &program); e != 0) {
      if (e != ENOENT) left("cannot tell whose it is: " + Why(e));
      return;
    }
    if (!ours(program)) return;
    const int error = options_.dry ? 0 : route_.RemoveFilterInOurPlace(interface.ifindex, egress);
    if (error != 0 && error != ENOENT && error != ENODEV) return left(Why(error));
    report_.done.push_back({instance, what, interface.name, interface.ifindex,
                            "detached; clsact stays, because removing it may drop packets"});
  }

 private:
  const Options& options_;
  Route& route_;
  Report& report_;
};

// One instance's folder, taken apart.
class Instance {
 public:
  Instance(const Options& options, std::string name, Route& route, Report& report)
      : options_(options),
        name_(std::move(name)),
        pins_(options.pin_root + "/" + name_),
        run_(options.run_root + "/" + name_),
        route_(route),
        report_(report),
        filters_(options, route, report) {}

  void Detach() {
    if (!OpenFolders() || !LockOut()) return;
    const size_t left = report_.left.size();
    if (FindMaps()) {
      SwitchMode();
      FindLinks();
      for (const Interface& interface : route_.Interfaces()) DetachFrom(interface);
      LeaveOtherLinks();
      if (report_.left.size() == left) RemovePins();
    }
    Unlock();
  }

 private:
  struct Pinned {
    std::string name;
    std::string what;  // "xdp", "tc egress", "tc ingress"
    uint32_t ifindex = 0;
    maps::UniqueFd fd;
    Link link;
    bool is_here = false;  // in this network namespace
  };

  void Done(std::string what, std::string object, std::string note = "", uint32_t ifindex = 0) {
    report_.done.push_back({name_, std::move(what), std::move(object), ifindex, std::move(note)});
  }
  void Left(std::string what, std::string object, std::string note, uint32_t ifindex = 0) {
    report_.left.push_back({name_, std::move(what), std::move(object), ifindex, std::move(note)});
  }

  bool LockOut();
  void Unlock();
  bool FindMaps();
  void SwitchMode();
  void FindLinks();
  void DetachFrom(const Interface& interface);
  void RemoveLink(const Interface& interface, const Pinned& pinned);
  bool IsAttached(const Pinned& pinned);
  void LeaveOtherLinks();
  void RemovePins();

  const Options& options_;
  // Both folders are the service's, and this is root: see maps/folder.h.
  bool OpenFolders();
  std::vector<std::string> Pins() const {
    return pins_folder_.ok() ? ListFolder(pins_folder_.get()) : std::vector<std::string>();
  }

  const std::string name_, pins_, run_;
  maps::UniqueFd pins_folder_, run_folder_;
  Route& route_;
  Report& report_;
  Filters filters_;
  maps::UniqueFd lock_;
  std::set<uint32_t> maps_;  // ids
  std::vector<Pinned> links_;
};

bool Instance::OpenFolders() {
  for (auto [path, folder] : {std::pair(&pins_, &pins_folder_), std::pair(&run_, &run_folder_)}) {
    *folder = maps::OpenFolder(*path);
    if (folder->ok() || errno == ENOENT) continue;
    Left("folder", *path,
         errno == ENOTDIR ? "a symlink of another user's is in the path: look who made it" : Why(errno));
    return false;
  }
  return true;
}

// The agent's own lock: no agent runs, and none starts meanwhile.
bool Instance::LockOut() {
  if (!run_folder_.ok()) return true;
  lock_ = maps::OpenFileIn(run_folder_.get(), kLock, options_.dry ? O_RDONLY : O_RDWR | O_CREAT, 0644);
  if (!lock_.ok() && (errno == ELOOP || errno == EMLINK)) {
    Left("lock", run_ + "/" + kLock, "it is not a file of its own: look who made it, and remove it");
    return false;
  }
  if (!lock_.ok()) return true;  // none who holds it
  // Its next holder is not root.
  struct stat folder;
  if (!options_.dry && fstat(run_folder_.get(), &folder) == 0) (void)!fchown(lock_.get(), folder.st_uid, folder.st_gid);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return true;
  char holder[256] = {};
  (void)!pread(lock_.get(), holder, sizeof(holder) - 1, 0);
  lock_.reset();
  if (options_.force) return true;
  Left("agent", holder, "it runs: stop it first, or give --force, and it goes on without its programs");
  return false;
}

void Instance::Unlock() {
  if (!lock_.ok()) return;
  if (!options_.dry) unlinkat(run_folder_.get(), kLock, 0);  // while it is held, so that nobody else's goes
  lock_.reset();
}

bool Instance::FindMaps() {
  if (!Exists("/proc/self/fd")) {  // which tells maps from links
    Left("pins", pins_, "cannot be told apart; mount /proc");
    return false;
  }
  for (const std::string& name : Pins()) {
    int error = 0;
    const maps::UniqueFd fd = OpenPinIn(pins_folder_.get(), name, &error);
    if (error != 0) {
      Left("pin", pins_ + "/" + name, Why(error));
      return false;
    }
    MapInfo info;
    if (ReadMap(fd.get(), &info) == 0) maps_.insert(info.id);
  }
  return true;
}

// Flows go home in the programs' own way before these are gone.
void Instance::SwitchMode() {
  if (SwitchOff(ControlPin(pins_), options_.dry).outcome == Switched::Outcome::kDone)
    Done("mode", ControlPin(pins_), "off: every flow on its native port");
}

void Instance::FindLinks() {
  static constexpr std::pair<const char*, const char*> kKinds[] = {{CW_PIN_XDP_LINK_FMT "%n", "xdp"},
                                                                   {CW_PIN_TCX_EGRESS_FMT "%n", "tc egress"},
                                                                   {CW_PIN_TCX_INGRESS_FMT "%n", "tc ingress"}};
  for (const std::string& name : Pins()) {
    for (const auto& [format, what] : kKinds) {
      Pinned pinned{.name = name, .what = what};
      int end = 0, error = 0;
      if (sscanf(name.c_str(), format, &pinned.ifindex, &end) != 1 || name[static_cast<size_t>(end)] != 0) continue;
      pinned.fd = OpenPinIn(pins_folder_.get(), name, &error);
      if (error != 0 || ReadLink(pinned.fd.get(), &pinned.link) != 0) continue;
      if (pinned.link.ifindex == pinned.ifindex) links_.push_back(std::move(pinned));  // else the interface is gone
    }
  }
}

void Instance::DetachFrom(const Interface& interface) {
  for (Pinned& pinned : links_) {
    if (pinned.ifindex != interface.ifindex || !IsAttached(pinned)) continue;
    pinned.is_here = true;
    RemoveLink(interface, pinned);
  }
  const auto ours = [&](const Program& program) { return UsesAny(program, maps_); };
  for (const bool egress : {false, true}) filters_.Remove(name_, interface, egress, ours);
}

// An interface of this number may be another namespace's: then another program is on ours, or none.
bool Instance::IsAttached(const Pinned& pinned) {
  std::set<uint32_t> attached;
  if (pinned.what == "xdp") {
    if (route_.XdpPrograms(pinned.ifindex, &attached) != 0) return false;
  } else {
    std::vector<dataplane::TcxProgram> programs;
    if (dataplane::QueryTcx(pinned.ifindex, pinned.what == "tc egress", &programs) != 0) return false;
    for (const dataplane::TcxProgram& program : programs) attached.insert(program.program);
  }
  return attached.contains(pinned.link.program);
}

void Instance::RemoveLink(const Interface& interface, const Pinned& pinned) {
  const int error = options_.dry ? 0 : DetachLink(pinned.fd.get());
  if (error != 0 && error != ENOLINK && error != ENODEV) {
    Left(pinned.what, interface.name, Why(error), interface.ifindex);
    return;
  }
  Done(pinned.what, interface.name, "detached", interface.ifindex);
  if (!options_.dry) unlinkat(pins_folder_.get(), pinned.name.c_str(), 0);
}

void Instance::LeaveOtherLinks() {
  for (const Pinned& pinned : links_) {
    if (pinned.is_here) continue;
    Left(pinned.what, "interface " + std::to_string(pinned.ifindex),
         "it is in another network namespace: run this there too (nsenter --net=...), with this file system of pins",
         pinned.ifindex);
  }
}

void Instance::RemovePins() {
  for (const std::string& name : options_.dry ? std::vector<std::string>() : Pins()) {
    if (unlinkat(pins_folder_.get(), name.c_str(), 0) != 0 && errno != ENOENT) {
      Left("pin", pins_ + "/" + name, Why(errno));
      return;
    }
  }
  if (!options_.dry && rmdir(pins_.c_str()) != 0 && errno != ENOENT) {
    Left("pins", pins_, Why(errno));
    return;
  }
  Done("pins", pins_, "removed");
}

// Not kept is no reason to fail: what was asked for is done.
void KeepAct(const Options& options, const std::string& name, Report& report) {
  const std::string path = options.state_root + "/" + name + "/acts.jsonl";
  const acts::ActsFile file(path);
  if (!file.HasFolder()) return;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  acts::Act act = acts::ByThisProcess("cwfabric-off", options.force ? "force" : "");
  if (!report.left.empty()) {
    act.outcome = "failed";
    act.error = report.left.back().note;
  }
  const std::string fault = file.Append(act, now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec);
  if (!fault.empty()) report.done.push_back({name, "acts", path, 0, "not kept who did this: " + fault});
}

// Filters of ours on whose maps no instance works: somebody removed the pins. Links went with them.
void RemoveOrphans(const Options& options, Route& route, Report& report) {
  std::set<uint32_t> pinned;
  for (const std::string& instance : ListFolder(options.pin_root)) {
    const std::string folder = options.pin_root + "/" + instance;
    for (const std::string& name : ListFolder(folder)) {
      int error = 0;
      MapInfo info;
      const maps::UniqueFd fd = OpenPin(folder + "/" + name, &error);
      if (error != 0) return;  // it may be one of theirs
      if (ReadMap(fd.get(), &info) == 0) pinned.insert(info.id);
    }
  }
  const auto orphan = [&](const Program& program) {
    return (program.name == CW_PROG_TC || program.name == CW_PROG_TC_IN) && !UsesAny(program, pinned);
  };
  Filters filters(options, route, report);
  for (const Interface& interface : route.Interfaces()) {
    for (const bool egress : {false, true}) filters.Remove("", interface, egress, orphan);
  }
}

}  // namespace

bool IsInstanceName(const std::string& name) {
  return !name.empty() && name.size() <= 32 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

Report Detach(const Options& options) {
  Report report;
  report.dry = options.dry;
  Route route;
  if (route.error() != 0) {
    report.left.push_back({"", "netlink", "", 0, Why(route.error())});
    return report;
  }
  if (access(options.pin_root.c_str(), R_OK | X_OK) != 0 && errno != ENOENT) {
    report.left.push_back({"", "pins", options.pin_root, 0, Why(errno)});
    return report;
  }
  for (const std::string& name : ListFolder(options.pin_root)) {
    if (!options.instance.empty() && name != options.instance) continue;
    Instance(options, name, route, report).Detach();
    if (!options.dry) KeepAct(options, name, report);
  }
  if (options.instance.empty()) RemoveOrphans(options, route, report);
  // The folder above is the package's.
  if (!options.dry && report.left.empty()) rmdir(options.pin_root.c_str());
  return report;
}

}  // namespace cw::off
