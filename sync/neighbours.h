// SPDX-License-Identifier: Apache-2.0
//
// Which peers a host compares its clock with: a sparse random graph that every host computes alike from the members'
// ids and the cluster's seed, without a word between them. It is the union of keyed random rings: each ring sorts the
// members by a keyed hash, and a host's neighbours are the next one on either side. A member that joins or leaves
// changes two links of each ring and no other. Unions of random rings are expanders: what one host learns, all know
// after log N rounds (J. Friedman, "A proof of Alon's second eigenvalue conjecture", 2008, for the permutation model).
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cw::sync {

// The id of a host name; never 0.
uint64_t HostId(const std::string& name);
// What people see of a host of which only the id is known: "#" and 16 hexadecimal digits.
std::string HostLabel(uint64_t host_id);

inline constexpr int kLeastDegree = 8;
// max(kLeastDegree, about log2 N), even.
int NeighbourDegree(size_t members);

// Indices into `members` of the neighbours of members[self], ascending: about NeighbourDegree many (rings may share a
// link; up to four more below 128 members), all others among up to 17 members. About N · degree / 2 hashes:
// milliseconds for 100,000. Ids are distinct; their order does not matter.
std::vector<size_t> ChooseNeighbours(const std::vector<uint64_t>& members, size_t self, uint64_t seed);

// The same for all members at once, for simulators and tests.
std::vector<std::vector<size_t>> ChooseAllNeighbours(const std::vector<uint64_t>& members, uint64_t seed);

}  // namespace cw::sync
