// SPDX-License-Identifier: Apache-2.0
//
// Whether packets of full size arrive on one path, and up to which size they do. One is asked about at a time; where it
// is not answered, rounds follow: the small one, full-size ones and sizes between. A size is only found where the small
// one of each round was answered, no full-size one was, and what was answered in between is all that is smaller.
// All else says nothing: lost answers, a late agent at either end, a path that loses packets of any size.
// Times: ns of any one clock. Sizes: bytes from the IP header to the ICRC. Pure; one thread.
#pragma once

#include <cstdint>
#include <vector>

namespace cw::control {

// The largest RoCE packet that a NIC of this MTU may send: an immediate and a RETH on a payload of 256 to 4096 bytes;
// 0: none fits, or the MTU is not known.
uint32_t RocePacketBytes(uint32_t mtu, bool v4);

struct SizeRules {
  int64_t interval_ns = 2'000'000'000;    // between two checks
  int64_t patience_ns = 250'000'000;      // for an answer
  int64_t hesitate_ns = 1'000'000'000;    // after what said nothing
  int least_rounds = 3, most_rounds = 6;  // before a size is found
  uint32_t copies = 2;                    // of the full size in each round
};

class PathSize {
 public:
  explicit PathSize(const SizeRules& rules = {}) : rules_(rules) {}

  // Whether Ask() has something at this time; it stays due until it is asked. late: nobody looked for longer than it
  // should be: what was asked is void.
  bool Due(int64_t now_ns, bool late);
  // Sizes to be asked about now, at once; 0: as small as it goes. Only where it is due. full: not 0.
  std::vector<uint32_t> Ask(uint32_t full, int64_t now_ns);
  void Answered(uint32_t token, uint32_t bytes);
  void Void(int64_t now_ns);                 // what was asked says nothing
  void Hurry(int64_t now_ns);                // data does not arrive: now instead of at its turn
  uint32_t token() const { return token_; }  // of what was asked last

  bool resting() const { return !waits_ && round_ == 0; }
  int64_t began_ns() const { return began_ns_; }    // when the check that is under way, or was last, began
  int64_t passed_ns() const { return passed_ns_; }  // when the newest full-size packet that arrived was sent; 0: never
  int64_t asked_ns() const { return asked_ns_; }    // when it was asked last; 0: never

  // The verdict. 0: full-size packets arrive, or it is not known that they do not.
  uint32_t arrives() const { return arrives_; }  // the largest that does …
  uint32_t lost() const { return lost_; }        // … and the smallest that does not, as far as is known
  uint32_t full() const { return full_; }        // the size that it is about

 private:
  bool Judge(int64_t now_ns);
  void Rest(int64_t now_ns, int64_t for_ns);
  bool Narrow();
  std::vector<uint32_t> Between() const;

  SizeRules rules_;
  uint32_t full_ = 0, arrives_ = 0, lost_ = 0;
  int64_t due_ns_ = 0, asked_ns_ = 0, began_ns_ = 0, passed_ns_ = 0;
  bool waits_ = false;  // for answers
  int round_ = 0;       // 0: the full size alone
  int again_ = 0;       // checks since it was found
  uint32_t token_ = 0;
  uint32_t low_ = 0, high_ = 0;  // what arrived, what did not, in these rounds
  std::vector<uint32_t> asked_, answered_;
};

}  // namespace cw::control
