// SPDX-License-Identifier: Apache-2.0
//
// One opened BPF object file on its way into the kernel. Errors carry libbpf's words and the verifier's log.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "maps/bpf_map.h"

struct bpf_map;
struct bpf_object;

namespace cw::dataplane {

class BpfObjectFile {
 public:
  static absl::StatusOr<BpfObjectFile> Open(absl::string_view elf);
  BpfObjectFile(BpfObjectFile&&) = default;

  std::vector<bpf_map*> Maps() const;  // those that the source declares, without .rodata and the like
  bpf_map* ConstantsMap() const;       // .rodata; nullptr without one
  absl::Status SetMaxEntries(bpf_map* map, uint32_t max_entries);
  // FailedPrecondition, with what to do, when `existing` has another layout than `map` declares.
  absl::Status Reuse(bpf_map* map, const maps::BpfMap& existing);
  absl::Status LeaveOut(bpf_map* map);
  // Sets a `const volatile` variable of the object; InvalidArgument when it is not as long as `bytes`.
  absl::Status SetConstant(const std::string& name, absl::string_view bytes);
  absl::Status DropFrags(const char* program);
  // Only this program is loaded, for one device.
  absl::Status BindOnly(const char* program, uint32_t ifindex);

  absl::Status Load();

  // After Load: another descriptor.
  absl::StatusOr<maps::UniqueFd> ProgramFd(const char* name) const;
  std::string Constants() const;                   // .rodata
  std::string Btf() const;                         // the types; before Load, too
  size_t Instructions(const char* program) const;  // as they were given to the kernel

 private:
  struct Closer {
    void operator()(bpf_object* object) const;
  };
  BpfObjectFile() = default;
  std::unique_ptr<std::string> verifier_log_;  // its address is in the object
  std::unique_ptr<bpf_object, Closer> object_;
};

}  // namespace cw::dataplane
