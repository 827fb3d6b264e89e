// SPDX-License-Identifier: Apache-2.0
//
// The kernel half of one instance: its programs and maps, loaded, pinned, adopted, attached and removed.
//
// Everything is pinned under CW_PIN_ROOT/INSTANCE and goes on without us: destroying a Dataplane detaches nothing, and
// the next Open adopts flows, steering, counters and path states. An Open by another release exchanges the programs
// atomically and keeps the maps. Interfaces are those of the calling thread's network namespace; enter it with
// setns(CLONE_NEWNET), which leaves the BPF file system visible.
// Threads: the views may be used from several threads; Open, Attach, Detach from one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "maps/counters.h"
#include "maps/names.h"
#include "maps/ring_reader.h"
#include "maps/views.h"
#include "userspace/dataplane/file_lock.h"
#include "userspace/dataplane/flow_editor.h"
#include "userspace/dataplane/hook_look.h"
#include "userspace/dataplane/program_set.h"
#include "userspace/dataplane/xdp_hook.h"

namespace cw::dataplane {

struct Options {
  std::string instance = "default";  // [A-Za-z0-9_-]{1,32}
  uint32_t max_pairs = 1024;         // sizes count when the maps are made; pinned ones keep theirs (notes() says so)
  uint32_t max_flows = 65536;
  uint32_t max_tx_flows = 16384;
  std::string lab_clock;          // pinned path of the lab's hidden clock, "" = none
  std::string lab_nic;            // … and of its simulated NICs' clock: they stamp what arrives
  bool nic_failover = false;      // attach tc ingress too: packets that another NIC carried are put back there
  bool attach_offloaded = false;  // attach even where the NIC offloads RoCE
  std::string pin_root = CW_PIN_ROOT;
  std::string run_root = "/run/cwfabric";  // locks: INSTANCE/lock, nic-NAMESPACE-IFINDEX.lock
  std::string sysfs_root = "/sys";         // RDMA devices only
  absl::string_view elf;                   // another BPF object than the built-in one; must outlive the Dataplane
};

struct AttachInfo {
  uint32_t ifindex = 0;
  std::string ifname;
  XdpMode mode = XdpMode::kNative;
  bool frags = true;
  bool adopted = false;     // it was attached by an earlier agent
  std::string warning;      // "" or why it is not the best mode
  bool nic_stamps = false;  // the program asks the NIC for its stamps
  std::string stamps_note;  // why it does not, though that was asked for
};

class Dataplane {
 public:
  // AlreadyExists: another process serves the instance. FailedPrecondition: pins of another layout; the message says
  // what to do. A refused program's error has the verifier's log.
  static absl::StatusOr<std::unique_ptr<Dataplane>> Open(const Options& options);

  // Detaches and removes what an instance has pinned, without loading anything: for an instance whose agent is gone, of
  // whatever layout. AlreadyExists while an agent serves it. Ok when there is nothing. tc filters of other network
  // namespaces than the calling thread's are not found. Filters of ours whose pins somebody removed go, too.
  static absl::Status Remove(const Options& options);

  Dataplane(const Dataplane&) = delete;
  Dataplane& operator=(const Dataplane&) = delete;

  // Attaches both programs, or adopts and repairs what is attached; idempotent. Nothing stays attached on an error.
  // AlreadyExists: somebody else's program is there (named), or another agent serves this NIC. FailedPrecondition: the
  // NIC offloads RoCE. NotFound: no such interface.
  // nic_stamps: with the program that is bound to this NIC and has its stamps, where kernel and driver can; otherwise
  // with the usual one.
  absl::StatusOr<AttachInfo> Attach(uint32_t ifindex, bool nic_stamps = false);
  absl::StatusOr<AttachInfo> Attach(const std::string& ifname);
  absl::Status Detach(uint32_t ifindex);  // Ok when nothing was attached
  // Asks the kernel; FailedPrecondition: the interface was not attached.
  absl::StatusOr<HookLook> Look(uint32_t ifindex) const;
  // Pins again what somebody unpinned under us, so that the next agent finds it. The names that were gone.
  absl::StatusOr<std::vector<std::string>> RestorePins();
  // The end of an instance: after it the object is of no use.
  absl::Status DetachAllAndUnpin();

  // Interfaces that are attached, by us or by the agent before us.
  std::vector<AttachInfo> Attached() const;

  std::string PinOf(const std::string& map) const { return pins_.File(map); }  // CW_MAP_…: its path
  bool adopted() const { return programs_.adopted(); }
  bool replaced() const { return programs_.replaced(); }
  const std::vector<std::string>& notes() const { return programs_.notes(); }

  const maps::CtlView& ctl() const { return views_->ctl; }  // one record: ctl()[0]
  const maps::FlowsView& flows() const { return views_->flows; }
  const maps::TxFlowsView& tx_flows() const { return views_->tx_flows; }
  const maps::PairIndexView& pair_index() const { return views_->pair_index; }
  const maps::PairsView& pairs() const { return views_->pairs; }
  const maps::ProbeTxView& probe_tx() const { return views_->probe_tx; }
  const maps::KeysView& keys() const { return views_->keys; }
  const maps::LocalClockView& local_clock() const { return views_->local_clock; }  // one record: local_clock()[0]
  const maps::NicLinesView& nic_lines() const { return views_->nic_lines; }
  const maps::CarryOutView& carry_out() const { return views_->carry_out; }
  const maps::CarryInView& carry_in() const { return views_->carry_in; }
  const maps::CountersView& counters() const { return views_->counters; }
  const FlowEditor& flow_editor() const { return views_->flow_editor; }
  const maps::BpfMap& probe_ring() const { return views_->probe_ring; }  // for maps::RingReader
  const maps::BpfMap& event_ring() const { return views_->event_ring; }
  const maps::BpfMap& msg_ring() const { return views_->msg_ring; }

  int xdp_fd() const { return programs_.xdp_fd(); }
  int tc_fd() const { return programs_.tc_fd(); }
  // Fresh from the kernel: run time and count, when kernel.bpf_stats_enabled.
  absl::StatusOr<ProgramInfo> XdpInfo() const { return GetProgramInfo(programs_.xdp_fd()); }
  absl::StatusOr<ProgramInfo> TcInfo() const { return GetProgramInfo(programs_.tc_fd()); }
  absl::StatusOr<ProgramInfo> TcIngressInfo() const { return GetProgramInfo(programs_.tc_in_fd()); }

 private:
  struct Views {
    maps::CtlView ctl;
    maps::FlowsView flows;
    maps::TxFlowsView tx_flows;
    maps::PairIndexView pair_index;
    maps::PairsView pairs;
    maps::ProbeTxView probe_tx;
    maps::KeysView keys;
    maps::LocalClockView local_clock;
    maps::NicLinesView nic_lines;
    maps::CarryOutView carry_out;
    maps::CarryInView carry_in;
    maps::CountersView counters;
    FlowEditor flow_editor;
    maps::BpfMap probe_ring, event_ring, msg_ring;
  };
  struct Nic {
    AttachInfo info;
    maps::UniqueFd xdp_link, tc_egress, tc_ingress;  // of tc: not open where it is a filter, or not wanted
    FileLock lock;
  };

  Dataplane(Options options, FileLock lock, PinFolder pins, ProgramSet programs);
  absl::Status OpenViews();
  bool AdoptInterfaces();  // all of them
  void ExchangeAttached();
  absl::StatusOr<Nic> AttachNic(uint32_t ifindex, bool nic_stamps);
  absl::Status AttachBothTc(uint32_t ifindex, Nic& nic);

  Options options_;
  FileLock lock_;
  PinFolder pins_;
  ProgramSet programs_;
  std::unique_ptr<Views> views_;
  std::map<uint32_t, Nic> nics_;
};

}  // namespace cw::dataplane
