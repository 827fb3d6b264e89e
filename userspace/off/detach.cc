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
#include <map>

#include "maps/folder.h"
#include "maps/unique_fd.h"
#include "userspace/acts/acts_file.h"
#include "userspace/off/control.h"
#include "userspace/off/kernel.h"
#include "userspace/off/tc.h"

namespace cw::off {
namespace {

constexpr char kLock[] = "lock";

std::string Why(int error) {
  return error == EPERM || error == EACCES ? std::string(strerror(error)) + "; run as root" : strerror(error);
}

// One instance's folder, taken apart.
class Instance {
 public:
  Instance(const Options& options, std::string name, Route& route, Report& report)
      : options_(options),
        name_(std::move(name)),
        pins_(options.pin_root + "/" + name_),
        run_(options.run_root + "/" + name_),
        route_(route),
        report_(report) {}

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
    maps::UniqueFd fd;
    Link link;
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
  bool RemoveLink(const Interface& interface);
  bool RemoveFilter(const Interface& interface, bool egress);
  void RemoveClsact(const Interface& interface);
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
  maps::UniqueFd lock_;
  std::set<uint32_t> maps_;           // ids
  std::map<uint32_t, Pinned> links_;  // by interface
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
  for (const std::string& name : Pins()) {
    unsigned ifindex = 0;
    int end = 0;
    if (sscanf(name.c_str(), CW_PIN_XDP_LINK_FMT "%n", &ifindex, &end) != 1 || name[static_cast<size_t>(end)] != 0)
      continue;
    Pinned pinned{.name = name};
    int error = 0;
    pinned.fd = OpenPinIn(pins_folder_.get(), name, &error);
    if (error != 0 || ReadXdpLink(pinned.fd.get(), &pinned.link) != 0) continue;
    if (pinned.link.ifindex == ifindex) links_[ifindex] = std::move(pinned);  // else the interface is gone
  }
}

void Instance::DetachFrom(const Interface& interface) {
  bool ours = RemoveLink(interface);
  for (const bool egress : {false, true}) ours |= RemoveFilter(interface, egress);
  if (ours) RemoveClsact(interface);
}

bool Instance::RemoveLink(const Interface& interface) {
  const auto found = links_.find(interface.ifindex);
  if (found == links_.end()) return false;
  std::set<uint32_t> attached;
  // An interface of this number may be another namespace's: then another program is on ours, or none.
  if (route_.XdpPrograms(interface.ifindex, &attached) != 0 || !attached.contains(found->second.link.program))
    return false;
  const int error = options_.dry ? 0 : DetachLink(found->second.fd.get());
  if (error != 0 && error != ENOLINK && error != ENODEV) {
    Left("xdp", interface.name, Why(error), interface.ifindex);
  } else {
    Done("xdp", interface.name, "detached", interface.ifindex);
    if (!options_.dry) unlinkat(pins_folder_.get(), found->second.name.c_str(), 0);
  }
  links_.erase(found);
  return true;
}

bool Instance::RemoveFilter(const Interface& interface, bool egress) {
  const char* what = egress ? "tc egress" : "tc ingress";
  uint32_t id = 0;
  if (const int error = route_.FilterInOurPlace(interface.ifindex, egress, &id); error != 0 || id == 0) return false;
  Program program;
  if (const int error = ReadProgram(id, &program); error != 0) {
    if (error != ENOENT) Left(what, interface.name, "cannot tell whose it is: " + Why(error), interface.ifindex);
    return false;
  }
  const auto is_ours = [&](uint32_t map) { return maps_.contains(map); };
  if (std::none_of(program.maps.begin(), program.maps.end(), is_ours)) return false;
  const int error = options_.dry ? 0 : route_.RemoveFilterInOurPlace(interface.ifindex, egress);
  if (error != 0 && error != ENOENT && error != ENODEV) {
    Left(what, interface.name, Why(error), interface.ifindex);
  } else {
    Done(what, interface.name, "detached", interface.ifindex);
  }
  return true;
}

// Only where the agent noted that it added it.
void Instance::RemoveClsact(const Interface& interface) {
  const std::string marker = "clsact-" + std::to_string(interface.ifindex);
  if (!run_folder_.ok() || faccessat(run_folder_.get(), marker.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) return;
  int filters = 0;
  if (options_.dry) {
    Done("clsact", interface.name, "removed, unless others have filters there", interface.ifindex);
    return;
  }
  int error = route_.CountFilters(interface.ifindex, &filters);
  if (error == 0 && filters > 0) {
    unlinkat(run_folder_.get(), marker.c_str(), 0);  // it is theirs now
    Done("clsact", interface.name, "stays: others have filters there", interface.ifindex);
    return;
  }
  if (error == 0) error = route_.RemoveClsact(interface.ifindex);
  if (error != 0 && error != ENOENT && error != ENODEV && error != EINVAL) {
    Left("clsact", interface.name, Why(error), interface.ifindex);
    return;
  }
  unlinkat(run_folder_.get(), marker.c_str(), 0);
  Done("clsact", interface.name, "removed", interface.ifindex);
}

void Instance::LeaveOtherLinks() {
  for (const auto& [ifindex, pinned] : links_) {
    Left("xdp", "interface " + std::to_string(ifindex),
         "it is in another network namespace: run this there too (nsenter --net=...), with this file system of pins",
         ifindex);
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
  // The folder above is the package's.
  if (!options.dry && report.left.empty()) rmdir(options.pin_root.c_str());
  return report;
}

}  // namespace cw::off
