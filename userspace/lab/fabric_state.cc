// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/fabric_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/lab/fabric_layout.h"

namespace cw::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kRoot[] = "/run/cwlab";

std::string StateFile(const std::string& lab) { return LabRunDir(lab) + "/fabric.json"; }
std::string LockFile(const std::string& lab) {
  return absl::StrCat(kRoot, "/.", lab, ".lock");
}  // Down removes the folder
std::string PidsDir(const std::string& lab) { return LabRunDir(lab) + "/pids"; }

json StateToJson(const ProcessId& process) { return {{"pid", process.pid}, {"start_ticks", process.start_ticks}}; }
ProcessId ProcessFrom(const json& j) { return {j.at("pid").get<pid_t>(), j.at("start_ticks").get<uint64_t>()}; }

json StateToJson(const FabricSpec& spec) {
  return {{"lab", spec.lab},
          {"leaves", spec.leaves},
          {"spines", spec.spines},
          {"hosts_per_leaf", spec.hosts_per_leaf},
          {"link_mbps", spec.link_mbps},
          {"host_link_mbps", spec.host_link_mbps},
          {"mtu", spec.mtu},
          {"ipv6", spec.ipv6},
          {"queue_bytes", spec.queue_bytes},
          {"ecn", spec.ecn},
          {"ecn_drain", spec.ecn_drain},
          {"ecn_min_bytes", spec.ecn_min_bytes},
          {"ecn_max_bytes", spec.ecn_max_bytes},
          {"ecn_p_max", spec.ecn_p_max},
          {"ecmp_seed", spec.ecmp_seed}};
}

FabricSpec SpecFrom(const json& j) {
  FabricSpec spec;
  j.at("lab").get_to(spec.lab);
  j.at("leaves").get_to(spec.leaves);
  j.at("spines").get_to(spec.spines);
  j.at("hosts_per_leaf").get_to(spec.hosts_per_leaf);
  j.at("link_mbps").get_to(spec.link_mbps);
  j.at("host_link_mbps").get_to(spec.host_link_mbps);
  j.at("mtu").get_to(spec.mtu);
  j.at("ipv6").get_to(spec.ipv6);
  j.at("queue_bytes").get_to(spec.queue_bytes);
  j.at("ecn").get_to(spec.ecn);
  j.at("ecn_drain").get_to(spec.ecn_drain);
  j.at("ecn_min_bytes").get_to(spec.ecn_min_bytes);
  j.at("ecn_max_bytes").get_to(spec.ecn_max_bytes);
  j.at("ecn_p_max").get_to(spec.ecn_p_max);
  j.at("ecmp_seed").get_to(spec.ecmp_seed);
  return spec;
}

json StateToJson(const FabricState& state) {
  json taps = json::array();
  for (const TapPort& tap : state.taps) {
    taps.push_back(
        {{"port", tap.port}, {"leaf", tap.leaf}, {"device", tap.device}, {"address", tap.address}, {"host", tap.host}});
  }
  return {{"spec", StateToJson(state.spec)},
          {"maps",
           {{"config", state.maps.config},
            {"links", state.maps.links},
            {"sums", state.maps.sums},
            {"flows", state.maps.flows}}},
          {"complete", state.complete},
          {"ecmp_seeded", state.ecmp_seeded},
          {"owner", state.owner ? StateToJson(*state.owner) : json(nullptr)},
          {"taps", taps}};
}

FabricState StateFrom(const json& j) {
  FabricState state;
  state.spec = SpecFrom(j.at("spec"));
  const json& maps = j.at("maps");
  state.maps = {maps.at("config"), maps.at("links"), maps.at("sums"), maps.at("flows")};
  j.at("complete").get_to(state.complete);
  j.at("ecmp_seeded").get_to(state.ecmp_seeded);
  if (!j.at("owner").is_null()) state.owner = ProcessFrom(j.at("owner"));
  for (const json& tap : j.at("taps")) {
    state.taps.push_back({tap.at("port"), tap.at("leaf"), tap.at("device"), tap.at("address"), tap.value("host", -1)});
  }
  return state;
}

absl::Status NotUp(const std::string& lab) {
  const std::vector<std::string> others = LabsOnDisk();
  return absl::NotFoundError(absl::StrCat("lab ", lab, " is not up (cwlab up --lab ", lab, ")",
                                          others.empty() ? "" : "; there are (--lab): ", absl::StrJoin(others, ", ")));
}

std::string ReadStateFile(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// By rename, so that a reader or a crash never meets half a file.
absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  const std::string draft = absl::StrCat(path, ".new.", getpid());
  std::ofstream file(draft);
  file << text << "\n";
  file.close();
  std::error_code error;
  if (file) fs::rename(draft, path, error);
  if (!file || error) return absl::InternalError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveState(const FabricState& state) {
  std::error_code error;
  fs::create_directories(PidsDir(state.spec.lab), error);
  if (error) return absl::InternalError(absl::StrCat("cannot create ", PidsDir(state.spec.lab), ": ", error.message()));
  return ReplaceFile(StateFile(state.spec.lab), StateToJson(state).dump(2));
}

absl::StatusOr<FabricState> LoadState(const std::string& lab) {
  if (!fs::exists(StateFile(lab))) return NotUp(lab);
  try {
    return StateFrom(json::parse(ReadStateFile(StateFile(lab))));
  } catch (const std::exception& e) {
    return absl::DataLossError(absl::StrCat(StateFile(lab), " cannot be read (", e.what(), "): run cwlab down"));
  }
}

absl::Status RemoveStateFiles(const std::string& lab) {
  std::error_code error;
  fs::remove_all(LabRunDir(lab), error);
  if (error) return absl::InternalError(absl::StrCat("cannot remove ", LabRunDir(lab), ": ", error.message()));
  return absl::OkStatus();
}

std::vector<std::string> LabsOnDisk() {
  std::vector<std::string> labs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kRoot, error)) {
    const std::string name = entry.path().filename();
    if (entry.is_directory() && ValidateLabName(name).ok()) labs.push_back(name);
  }
  return labs;
}

absl::Status SaveProcess(const std::string& lab, const ProcessId& process, const std::string& role) {
  json j = StateToJson(process);
  j["role"] = role;
  return ReplaceFile(absl::StrCat(PidsDir(lab), "/", process.pid), j.dump());
}

void RemoveProcess(const std::string& lab, pid_t pid) {
  std::error_code error;
  fs::remove(absl::StrCat(PidsDir(lab), "/", pid), error);
}

std::vector<ProcessId> LoadProcesses(const std::string& lab) {
  std::vector<ProcessId> processes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(PidsDir(lab), error)) {
    const json j = json::parse(ReadStateFile(entry.path()), nullptr, /*allow_exceptions=*/false);
    if (j.is_object() && j.contains("pid") && j.contains("start_ticks")) processes.push_back(ProcessFrom(j));
  }
  return processes;
}

absl::StatusOr<std::unique_ptr<LabLock>> LabLock::Take(const std::string& lab) {
  std::error_code error;
  fs::create_directories(kRoot, error);
  const std::string path = LockFile(lab);
  for (;;) {
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT) {  // another lab's end took the folder
      fs::create_directories(kRoot, error);
      if (!error) continue;
      errno = ENOENT;
    }
    if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
    std::unique_ptr<LabLock> lock(new LabLock(fd, lab));
    while (flock(fd, LOCK_EX)) {
      if (errno != EINTR) return absl::ErrnoToStatus(errno, absl::StrCat("lock ", path));
    }
    // The one who had it may have removed the file: then others lock another one.
    struct stat ours, there;
    if (!fstat(fd, &ours) && !stat(path.c_str(), &there) && ours.st_ino == there.st_ino) return lock;
    lock->lab_.clear();
  }
}

LabLock::~LabLock() {
  std::error_code ignored;
  if (!lab_.empty() && !fs::exists(LabRunDir(lab_), ignored)) {
    fs::remove(LockFile(lab_), ignored);
    fs::remove(kRoot, ignored);  // the last lab's end; not while another one is there
  }
  close(fd_);
}

}  // namespace cw::lab
