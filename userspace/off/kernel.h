// SPDX-License-Identifier: Apache-2.0
//
// What is pinned and attached, by plain bpf(2) calls: no libbpf, so that the program links without any library.
// Errors are an errno; 0 is none. Thread rule: none needed.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "maps/unique_fd.h"

namespace cw::off {

// A pinned object; not ok with *error set.
maps::UniqueFd OpenPin(const std::string& path, int* error);

// One of this folder itself: ELOOP for a symlink. Needs /proc.
maps::UniqueFd OpenPinIn(int folder, const std::string& name, int* error);

struct MapInfo {
  uint32_t id = 0;
  uint32_t type = 0;
  uint32_t value_size = 0;
  uint32_t flags = 0;
};
// EINVAL where it is no map.
int ReadMap(int fd, MapInfo* out);

struct Link {
  uint32_t ifindex = 0;  // 0: the interface is gone
  uint32_t program = 0;  // id
};
// EINVAL where it is no link of an XDP or tc program.
int ReadLink(int fd, Link* out);
int DetachLink(int fd);

struct Program {
  std::string name;
  std::set<uint32_t> maps;  // ids
};
int ReadProgram(uint32_t id, Program* out);

// Names in a folder, sorted; none where there is no such folder.
std::vector<std::string> ListFolder(const std::string& path);
std::vector<std::string> ListFolder(int folder);  // needs /proc
bool Exists(const std::string& path);

}  // namespace cw::off
