// SPDX-License-Identifier: Apache-2.0
// Sockets to processes that are not trusted, and descriptors that such a process puts into a message (SCM_RIGHTS).
//
// None of them may come into this process: closing one can take for ever. A FUSE file asks its server at close(2)
// (FLUSH), uninterruptibly, and any user can have such a server, in a user namespace of their own. To leave no room
// for descriptors when receiving is not enough: what the message held is then released by whoever received it, on the
// way back to user space (fput, task_work), and the release of a file that nobody else holds can wait, too: a TCP
// socket with SO_LINGER for its peer, a FUSE file with dirty pages for its server's WRITE. (FUSE's RELEASE itself is
// sent without waiting, FLUSH is a matter of close(2) alone.) So a message with descriptors is never received:
//   - Linux 6.16 lets a socket refuse them (SO_PASSRIGHTS): the sender gets EPERM.
//   - Before that each message is peeked at without room for descriptors, which tells of them (MSG_CTRUNC) and takes
//     no last reference. A socket with such a message is ended by a process of its own (Discards).
//
// Source: unix(7), scm_recv and unix_dgram_recvmsg in net/core/scm.c and net/unix/af_unix.c, fuse_flush and
// fuse_release in fs/fuse/file.c, inet_release in net/ipv4/af_inet.c (of Linux 6.1 and 6.18).
//
// Thread rule: one thread.
#ifndef CW_USERSPACE_RDMA_STRANGER_SOCKET_H
#define CW_USERSPACE_RDMA_STRANGER_SOCKET_H

#include <sys/types.h>

#include <vector>

namespace cw::rdma {

// For a listening socket: what is accepted from it is alike. False: this kernel cannot, senders are not stopped.
bool RefuseDescriptors(int listener);
// For an accepted one, before Peek: a message without bytes and the end of the connection differ by it.
bool TellMessagesFromTheEnd(int fd);

enum class Next { kNothing, kMessage, kDescriptors, kEnd, kBroken };
Next Peek(int fd);  // what would be received next; nothing is taken

// Ends sockets that may hold descriptors, in processes that do nothing else: each of them may have to wait for ever.
// It then holds its socket and a place in the table of processes, no memory, and none of this process's other
// descriptors or locks.
class Discards {
 public:
  static constexpr size_t kMostWaiting = 128;  // more of them: do not take further connections
  static constexpr size_t kMostChildren = 16;

  // Ends the connection, here if nothing is left in it, and otherwise by Work(). Takes the descriptor.
  void End(int fd);
  void Work();  // now and then, while busy()
  bool busy() const { return !waiting_.empty() || !children_.empty(); }
  bool full() const { return waiting_.size() >= kMostWaiting; }
  ~Discards();

 private:
  void Start();

  std::vector<int> waiting_;
  std::vector<pid_t> children_;
};

}  // namespace cw::rdma

#endif  // CW_USERSPACE_RDMA_STRANGER_SOCKET_H
