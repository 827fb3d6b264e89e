// SPDX-License-Identifier: Apache-2.0
//
// The dataplane's BPF object in the kernel: loaded onto pinned maps where an instance has them, and pinned itself.
// Threads: one at a time; the instance's lock must be held.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "maps/bpf_map.h"
#include "userspace/dataplane/map_record.h"
#include "userspace/dataplane/migration.h"
#include "userspace/dataplane/pins.h"
#include "userspace/dataplane/program_info.h"

struct bpf_object;

namespace cw::dataplane {

class BpfObjectFile;

struct LoadSpec {
  absl::string_view elf;                      // the compiled object; must outlive the ProgramSet
  absl::string_view bound_elf;                // … and the one for programs that are bound to a NIC
  std::map<std::string, uint32_t> map_sizes;  // max_entries by map name, for maps that are made anew
  std::string lab_clock;                      // pinned path of the lab's hidden clock, "" = none
  std::string lab_nic;                        // … of its simulated NICs' clock
  bool nic_failover = false;                  // may packets leave by another NIC?
};

class ProgramSet {
 public:
  // Loads and pins. What happened to the state of an earlier agent is in adopted(), replaced(), migrated() and notes().
  // Maps of a release with other records are not adopted but carried over, by the layouts that it recorded beside them
  // (map_record.h); FailedPrecondition where it recorded none. The verifier's log is in the error when a program is
  // refused. On any error the pins are as they were.
  static absl::StatusOr<ProgramSet> Load(const LoadSpec& spec, const PinFolder& pins);
  ProgramSet(ProgramSet&&) = default;

  bool adopted() const { return adopted_; }    // the maps were there, or what they had
  bool migrated() const { return migrated_; }  // … from records of another layout
  bool replaced() const { return replaced_; }  // other programs were pinned: attached ones must be exchanged
  const std::vector<std::string>& notes() const { return notes_; }

  int xdp_fd() const { return xdp_.get(); }
  int tc_fd() const { return tc_.get(); }
  int tc_in_fd() const { return tc_in_.get(); }
  const ProgramInfo& xdp_info() const { return xdp_info_; }
  const ProgramInfo& tc_info() const { return tc_info_; }
  const ProgramInfo& tc_in_info() const { return tc_in_info_; }
  // Another descriptor of a map; NotFound for a name that the object has not.
  absl::StatusOr<maps::BpfMap> Map(const std::string& name) const;

  // Is this program one that works on our maps (of this or an earlier load)?
  bool UsesOurMaps(const ProgramInfo& program) const;
  // Does it work on the same of our maps as the XDP program of this load? (Not: on those that an upgrade replaced.)
  bool WorksOnTheseMaps(const ProgramInfo& program) const;
  // Is it one that is or was pinned here? Needs no right to open programs by their numbers.
  bool Knows(uint32_t program_id) const;
  // The constants of these programs and of those that were pinned before.
  const std::vector<maps::BpfMap>& constants() const { return constants_; }

  // After Load, when attached programs were exchanged: takes over what the former maps learned since they were read,
  // and has programs that still work on them pass packets untouched. all: none is left, so what was replaced is let go
  // of.
  absl::Status EndExchange(bool all);
  // … and just before.
  absl::Status CatchUp() { return FillFromFormer(Fill::kNews); }

  // Pins again what somebody unpinned of maps and programs. The names that were gone.
  absl::StatusOr<std::vector<std::string>> RestorePins();

  // The XDP program without the multi-buffer flag, for drivers that refuse it; loaded at the first call.
  absl::StatusOr<int> PlainXdpFd();

  struct BoundXdp {
    maps::UniqueFd fd;
    bool frags = true;
  };
  // The XDP program that is bound to one NIC and has its stamps. Loaded by each call. FailedPrecondition: this kernel
  // does not keep such a program where it is, which would end in a crash when the NIC goes.
  absl::StatusOr<BoundXdp> LoadBoundXdp(uint32_t ifindex);

 private:
  ProgramSet(LoadSpec spec, PinFolder pins) : spec_(std::move(spec)), pins_(std::move(pins)) {}
  absl::Status LoadObject();
  absl::Status FindMaps(const BpfObjectFile& file, const absl::StatusOr<MapRecord>& left);
  absl::Status FindPinned(const BpfObjectFile& file);
  absl::Status Migrate();
  absl::Status FillFromFormer(Fill what);
  absl::Status RetireFormer();
  absl::Status PinMaps(std::vector<std::string>& fresh);
  absl::Status PinPrograms(std::vector<std::string>& fresh);
  absl::StatusOr<maps::UniqueFd> LoadBoundXdp(uint32_t ifindex, bool frags);
  absl::Status ReuseMaps(BpfObjectFile& file) const;
  absl::Status TakeConstants(const BpfObjectFile& file);
  absl::Status TakePinnedProgram(const char* name, maps::UniqueFd& fd, ProgramInfo& info);
  absl::Status PinEverything();

  LoadSpec spec_;
  PinFolder pins_;
  bool adopted_ = false;
  bool replaced_ = false;
  bool migrated_ = false;
  std::vector<std::string> notes_;
  maps::UniqueFd xdp_, tc_, tc_in_, plain_xdp_;
  ProgramInfo xdp_info_, tc_info_, tc_in_info_;
  std::vector<uint32_t> earlier_;  // programs that were pinned
  std::vector<maps::BpfMap> constants_;
  std::map<std::string, maps::BpfMap> maps_;
  MapRecord record_;                            // of maps_ …
  std::map<std::string, MapLayout> layout_;     // … and their records
  std::map<std::string, uint32_t> at_name_;     // ids of what is pinned under the maps' own names
  std::map<std::string, maps::BpfMap> pinned_;  // by an earlier agent, and gone on with
  std::map<std::string, maps::BpfMap> former_;  // … and replaced
  struct Program {
    uint32_t id = 0;
    maps::UniqueFd fd;
  };
  std::map<std::string, Program> former_programs_;  // … as these were
  std::map<std::string, MapLayout> former_layout_;  // of the maps by an earlier agent
  std::set<uint32_t> known_maps_;                   // ids of all that is pinned here
  std::vector<std::string> gone_;                   // names that this release has not
};

}  // namespace cw::dataplane
