// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/bpf_object_file.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "userspace/dataplane/features.h"
#include "userspace/dataplane/libbpf_log.h"

namespace cw::dataplane {
namespace {

constexpr uint32_t kDeviceBoundOnly = 1u << 6;  // BPF_F_XDP_DEV_BOUND_ONLY, of Linux 6.3
constexpr size_t kVerifierLogBytes = 1 << 20;
constexpr size_t kVerifierLogShown = 4000;  // its end says why

// The page size is rounded in by the kernel for rings, and max_entries of an adopted map wins: neither is layout.
bool SameLayout(const maps::MapShape& a, const bpf_map* b) {
  return a.type == bpf_map__type(b) && a.key_size == bpf_map__key_size(b) && a.value_size == bpf_map__value_size(b) &&
         a.flags == bpf_map__map_flags(b);
}

std::string Tail(const std::string& log) {
  std::string text = log.c_str();  // up to the first NUL
  if (text.size() > kVerifierLogShown) text = "[...]" + text.substr(text.size() - kVerifierLogShown);
  return text;
}

}  // namespace

void BpfObjectFile::Closer::operator()(bpf_object* object) const { bpf_object__close(object); }

absl::StatusOr<BpfObjectFile> BpfObjectFile::Open(absl::string_view elf) {
  LibbpfLog log;
  BpfObjectFile file;
  file.verifier_log_ = std::make_unique<std::string>(kVerifierLogBytes, '\0');
  LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "cwfabric", .kernel_log_buf = file.verifier_log_->data(),
              .kernel_log_size = kVerifierLogBytes);
  file.object_.reset(bpf_object__open_mem(elf.data(), elf.size(), &options));
  if (file.object_ == nullptr) return absl::ErrnoToStatus(errno, "open the BPF object: " + log.text());
  return file;
}

std::vector<bpf_map*> BpfObjectFile::Maps() const {
  std::vector<bpf_map*> out;
  bpf_map* map;
  bpf_object__for_each_map(map, object_.get()) {
    if (!bpf_map__is_internal(map)) out.push_back(map);
  }
  return out;
}

bpf_map* BpfObjectFile::ConstantsMap() const {
  bpf_map* map;
  bpf_object__for_each_map(map, object_.get()) {
    if (absl::EndsWith(bpf_map__name(map), ".rodata")) return map;
  }
  return nullptr;
}

absl::Status BpfObjectFile::SetMaxEntries(bpf_map* map, uint32_t max_entries) {
  const int rc = bpf_map__set_max_entries(map, max_entries);
  if (rc == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(-rc, absl::StrFormat("size the map %s to %u", bpf_map__name(map), max_entries));
}

absl::Status BpfObjectFile::Reuse(bpf_map* map, const maps::BpfMap& existing) {
  const maps::MapShape& have = existing.shape();
  if (!SameLayout(have, map)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the pinned map %s has another layout (type %u, key %u, value %u bytes, flags 0x%x) than this program's (type "
        "%u, "
        "key %u, value %u, flags 0x%x): another release of cwfabric made it. Start that release, or remove the "
        "instance's dataplane first (its flows' counters and steering are lost), then start again",
        bpf_map__name(map), have.type, have.key_size, have.value_size, have.flags, bpf_map__type(map),
        bpf_map__key_size(map), bpf_map__value_size(map), bpf_map__map_flags(map)));
  }
  const int rc = bpf_map__reuse_fd(map, existing.fd());
  if (rc == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(-rc, absl::StrFormat("reuse the map %s", bpf_map__name(map)));
}

absl::Status BpfObjectFile::LeaveOut(bpf_map* map) {
  const int rc = bpf_map__set_autocreate(map, false);
  return rc == 0 ? absl::OkStatus() : absl::ErrnoToStatus(-rc, absl::StrFormat("leave out %s", bpf_map__name(map)));
}

absl::Status BpfObjectFile::SetConstant(const std::string& name, absl::string_view bytes) {
  size_t size = 0;
  bpf_map* constants = bpf_object__find_map_by_name(object_.get(), ".rodata");
  auto* data =
      constants == nullptr ? nullptr : static_cast<char*>(const_cast<void*>(bpf_map__initial_value(constants, &size)));
  const btf* types = bpf_object__btf(object_.get());
  const int section = types == nullptr ? -ENOENT : btf__find_by_name_kind(types, ".rodata", BTF_KIND_DATASEC);
  if (data != nullptr && section > 0) {
    const btf_type* t = btf__type_by_id(types, static_cast<uint32_t>(section));
    const btf_var_secinfo* v = btf_var_secinfos(t);
    for (int i = 0; i < btf_vlen(t); ++i, ++v) {
      const btf_type* var = btf__type_by_id(types, v->type);
      if (name != btf__name_by_offset(types, var->name_off)) continue;
      if (v->size != bytes.size() || v->offset + v->size > size) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s has %u bytes in the BPF object, not %u", name, v->size, bytes.size()));
      }
      memcpy(data + v->offset, bytes.data(), bytes.size());
      return absl::OkStatus();
    }
  }
  return absl::NotFoundError(absl::StrFormat("the BPF object has no constant named %s", name));
}

absl::Status BpfObjectFile::DropFrags(const char* program) {
  bpf_program* p = bpf_object__find_program_by_name(object_.get(), program);
  if (p == nullptr) return absl::NotFoundError(absl::StrFormat("the BPF object has no program %s", program));
  const int rc = bpf_program__set_flags(p, bpf_program__flags(p) & ~static_cast<uint32_t>(BPF_F_XDP_HAS_FRAGS));
  return rc == 0 ? absl::OkStatus() : absl::ErrnoToStatus(-rc, absl::StrFormat("change the flags of %s", program));
}

absl::Status BpfObjectFile::BindOnly(const char* program, uint32_t ifindex) {
  bpf_program* p;
  bool found = false;
  bpf_object__for_each_program(p, object_.get()) {
    const bool is_it = std::string(program) == bpf_program__name(p);
    found |= is_it;
    bpf_program__set_autoload(p, is_it);
    if (!is_it) continue;
    bpf_program__set_ifindex(p, ifindex);
    bpf_program__set_flags(p, bpf_program__flags(p) | kDeviceBoundOnly);
  }
  return found ? absl::OkStatus() : absl::NotFoundError(absl::StrFormat("the BPF object has no program %s", program));
}

size_t BpfObjectFile::Instructions(const char* program) const {
  const bpf_program* p = bpf_object__find_program_by_name(object_.get(), program);
  return p == nullptr ? 0 : bpf_program__insn_cnt(p);
}

absl::Status BpfObjectFile::Load() {
  LibbpfLog log;
  const int rc = bpf_object__load(object_.get());
  if (rc == 0) return absl::OkStatus();
  std::string text = absl::StrFormat("the kernel refused the BPF object%s", MissingFeatures(ProbeFeatures()));
  if (!log.text().empty()) text += "\n" + log.text();
  if (const std::string verifier = Tail(*verifier_log_); !verifier.empty()) text += "\nverifier log:\n" + verifier;
  return absl::ErrnoToStatus(-rc, text);
}

absl::StatusOr<maps::UniqueFd> BpfObjectFile::ProgramFd(const char* name) const {
  bpf_program* p = bpf_object__find_program_by_name(object_.get(), name);
  if (p == nullptr) return absl::NotFoundError(absl::StrFormat("the BPF object has no program %s", name));
  maps::UniqueFd fd(fcntl(bpf_program__fd(p), F_DUPFD_CLOEXEC, 3));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, absl::StrFormat("duplicate the descriptor of %s", name));
  return fd;
}

std::string BpfObjectFile::Btf() const {
  uint32_t bytes = 0;
  const btf* types = bpf_object__btf(object_.get());
  const void* data = types == nullptr ? nullptr : btf__raw_data(types, &bytes);
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), bytes);
}

std::string BpfObjectFile::Constants() const {
  size_t bytes = 0;
  bpf_map* constants = bpf_object__find_map_by_name(object_.get(), ".rodata");
  const void* data = constants == nullptr ? nullptr : bpf_map__initial_value(constants, &bytes);
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), bytes);
}

}  // namespace cw::dataplane
