/* SPDX-License-Identifier: Apache-2.0 */
/* What the NCCL profiler plug-in shares with the agent: one memory per process, written by the plug-in alone.
 *
 * The agent makes the memory, a memfd of exactly CW_PROF_SIZE bytes, sealed against shrinking and growing, and sends it
 * over the socket of cw_inproc.h: CW_PROF_ASK, CW_PROF_MEMORY with its descriptor, and CW_PROF_READY when its head is
 * filled in. The agent takes no descriptor from anybody. It holds
 *   - pools of what is open now (communicators, collectives, proxy operations, steps, requests of the network), and
 *   - a ring of what ended: communicators, collectives, proxy operations with the time in each state, their queue
 * pairs. Sizes are fixed by the version, so a reader takes no index, offset or size from the memory without masking it.
 * Times are CLOCK_MONOTONIC, ns. Integers are in host byte order.
 *
 * A slot of a pool is live while its generation is odd. A handle names a slot and its generation, never an address: a
 * handle of a process that has gone, or of another process, is only a number that nothing has.
 * Ring: record i is complete when seq == 2·i + 2; while it is written seq is 2·i + 1; larger means overwritten.
 * A reader that does not trust the writer copies, then looks at seq again.
 * Thread rule: any number of writers in one process; any number of readers anywhere. libc only. */
#ifndef CW_PROFILER_H
#define CW_PROFILER_H
#include <stddef.h>
#include <stdint.h>

#include "userspace/inproc/cw_inproc.h"

#define CW_PROF_MAGIC 0x5057434c4c434e00ull
#define CW_PROF_VERSION 1

#define CW_PROF_COMMS 256
#define CW_PROF_COLLS 4096
#define CW_PROF_OPS 4096
#define CW_PROF_STEPS 16384
#define CW_PROF_NETS 16384
#define CW_PROF_RING 32768 /* records */
#define CW_PROF_OP_QPS 8   /* of one operation; what more there are is added to the last */
#define CW_PROF_STAMPS 8   /* chunks of an operation on one queue pair that are stamped, see cwp_chunk_stamp */
#define CW_PROF_MOST_CHUNKS (1u << 24) /* of one operation on one queue pair, to be counted */

enum cw_prof_kind { /* of a handle; 0 is never one */
                    CW_PROF_COMM = 1,
                    CW_PROF_COLL = 2, /* sends and receives, too */
                    CW_PROF_OP = 3,
                    CW_PROF_STEP = 4,
                    CW_PROF_NET = 5,
                    CW_PROF_KERNEL = 6, /* a channel of the kernel: its index is the collective's slot */
                    CW_PROF_PAIR = 7,   /* with another profiler behind this one: stands for both handles */
};

/* kind 4 bits, generation 28 bits, index 32 bits */
static inline uint64_t cw_prof_handle(unsigned kind, uint32_t generation, uint32_t index) {
  return (uint64_t)kind << 60 | (uint64_t)(generation & 0xfffffff) << 32 | index;
}
static inline unsigned cw_prof_handle_kind(uint64_t handle) { return (unsigned)(handle >> 60); }
static inline uint32_t cw_prof_handle_generation(uint64_t handle) { return (uint32_t)(handle >> 32) & 0xfffffff; }
static inline uint32_t cw_prof_handle_index(uint64_t handle) { return (uint32_t)handle; }

/* In the order of the time in them; 0 is "none yet". */
enum cw_prof_wait {
  CW_WAIT_NONE = 0,
  CW_WAIT_SEND_GPU = 1,  /* the GPU has no data yet */
  CW_WAIT_SEND_PEER = 2, /* the receiver has no room yet */
  CW_WAIT_SEND = 3,      /* the network has it */
  CW_WAIT_RECV = 4,      /* nothing has come yet */
  CW_WAIT_RECV_FLUSH = 5,
  CW_WAIT_RECV_GPU = 6, /* the GPU has not taken it yet */
  CW_WAIT_STATES = 7,
};

struct cw_prof_comm {
  uint32_t generation;
  uint32_t profiler; /* version of NCCL's interface: 4, 5 or 6 */
  uint64_t id;       /* the same in all processes of the communicator */
  int32_t ranks;
  int32_t rank;
  int32_t nodes;
  int32_t pad;
  uint64_t start_ns;
  uint64_t pad2[3];
  char name[64]; /* NUL-terminated */
};

struct cw_prof_coll {
  uint32_t generation;
  uint32_t open; /* children */
  uint64_t comm; /* handle */
  uint64_t start_ns;
  uint64_t pad[5];
};

/* The network's part of one queue pair in one proxy operation. */
struct cw_prof_qp {
  uint32_t qpn;
  int32_t device;    /* as NCCL counts them */
  uint32_t requests; /* completed */
  uint32_t pad;
  uint64_t bytes;
  uint64_t wire_ns; /* post to completion, summed */
  uint64_t wire_max_ns;
};

struct cw_prof_op {
  uint32_t generation;
  int32_t peer;  /* rank */
  uint64_t coll; /* handle, in process pid */
  uint64_t comm; /* handle, of this process */
  uint64_t start_ns;
  uint64_t progress_ns; /* last change of any of its steps */
  uint64_t first_ns;    /* first data: left SendGPUWait, or arrived; 0: not yet */
  uint64_t bytes;
  int32_t pid; /* whose collective it is: another process' under PXN */
  uint32_t steps;
  uint32_t steps_done;
  uint8_t channel;
  uint8_t is_send;
  uint8_t qps;
  uint8_t pad;
  uint64_t wait_ns[CW_WAIT_STATES];
  struct cw_prof_qp qp[CW_PROF_OP_QPS];
  uint64_t pad2[1];
};

struct cw_prof_step {
  uint32_t generation;
  uint32_t wait; /* enum cw_prof_wait */
  uint64_t op;   /* handle */
  uint64_t since_ns;
  uint64_t bytes;
  uint32_t step;
  uint32_t pad;
};

struct cw_prof_net {
  uint32_t generation;
  uint32_t qpn;
  uint64_t op; /* handle */
  uint64_t start_ns;
  uint64_t bytes;
  int32_t device;
  uint32_t number; /* among those of its operation on its queue pair, from 0 */
};

enum cw_prof_type {
  CW_PROF_COMM_START = 1,
  CW_PROF_COMM_END = 2,
  CW_PROF_COLL_START = 3,
  CW_PROF_COLL_STOP = 4, /* enqueued */
  CW_PROF_OP_STOP = 5,   /* behind the records of its queue pairs */
  CW_PROF_QP = 6,
  CW_PROF_KERNEL_STOP = 7,
  CW_PROF_CHUNKS = 8, /* in front of CW_PROF_OP_STOP; an agent that does not know it passes over it */
};

struct cw_prof_record {
  uint64_t seq;
  uint8_t type; /* enum cw_prof_type */
  uint8_t channel;
  uint8_t is_send;
  uint8_t is_p2p;
  int32_t pid; /* whose collective: see cw_prof_op */
  uint64_t time_ns;
  uint64_t coll; /* handle; of a communicator's records: its own */
  union {
    struct {
      uint64_t id;
      int32_t ranks, rank, nodes;
      uint32_t profiler;
      char name[64];
    } comm;
    struct {
      uint64_t comm; /* handle */
      uint64_t seq;
      uint64_t count;
      int32_t root; /* the peer of a send or receive */
      uint32_t channels;
      char function[16];
      char datatype[16];
      char algorithm[16];
      char protocol[8];
    } coll;
    struct {
      uint64_t op;
      uint64_t start_ns;
      uint64_t first_ns;
      uint64_t bytes;
      int32_t peer;
      uint32_t steps;                       /* done */
      uint64_t wait_ns[CW_WAIT_STATES - 1]; /* from CW_WAIT_SEND_GPU on */
      uint64_t comm;                        /* handle */
    } op;
    struct {
      uint64_t op;
      struct cw_prof_qp qp;
    } qp;
    /* When single chunks were posted (sends) or complete (receives). A chunk's number is its place among the requests
     * of this operation on this queue pair, in the order of their posts: the same at both ends. */
    struct {
      uint64_t op;
      uint64_t base_ns;
      uint32_t qpn;
      uint32_t posted; /* requests in all */
      uint8_t count;   /* of stamps */
      uint8_t unsure;  /* 1: events were lost meanwhile, so numbers may be wrong */
      uint8_t pad[6];
      struct {
        uint32_t number;
        uint32_t after_ns; /* base_ns */
      } stamp[CW_PROF_STAMPS];
    } chunks;
  } u;
};

/* Counted by the plug-in, never reset. */
struct cw_prof_counts {
  uint64_t events;  /* that were taken */
  uint64_t no_comm; /* events left out because their pool was full */
  uint64_t no_coll;
  uint64_t no_op;
  uint64_t no_step;
  uint64_t no_net;
  uint64_t stale;   /* handles that name nothing (any more) */
  uint64_t foreign; /* operations for another process (PXN) */
  uint64_t orphan;  /* events without a parent */
  uint64_t net;     /* requests of the network with a queue pair */
  uint64_t pad[6];
};

struct cw_prof_shared {
  uint64_t magic;
  uint32_t version;
  uint32_t pid;
  uint64_t start_ns;
  char label[64]; /* of the job, NUL-terminated, may be empty */
  char process[16];
  uint64_t pad[19];
  struct cw_prof_counts counts;
  uint64_t head; /* records that were begun */
  uint64_t pad2[15];
  uint8_t pad3[4096 - 512];
  struct cw_prof_comm comm[CW_PROF_COMMS];
  struct cw_prof_coll coll[CW_PROF_COLLS];
  struct cw_prof_op op[CW_PROF_OPS];
  struct cw_prof_step step[CW_PROF_STEPS];
  struct cw_prof_net net[CW_PROF_NETS];
  struct cw_prof_record ring[CW_PROF_RING];
};

#define CW_PROF_SIZE sizeof(struct cw_prof_shared)

enum cw_prof_message {
  CW_PROF_REGISTER = CW_INPROC_PROFILER, /* of releases before these three, with a descriptor: refused */
  CW_PROF_ASK,                           /* the plug-in: may I have a memory? */
  CW_PROF_MEMORY,                        /* the agent: there it is, or not */
  CW_PROF_READY,                         /* the plug-in: what is there may be read */
};

struct cw_prof_hello {
  uint32_t magic;   /* CW_INPROC_MAGIC */
  uint16_t version; /* CW_INPROC_VERSION */
  uint16_t type;    /* enum cw_prof_message */
  uint32_t layout;  /* CW_PROF_VERSION, the sender's */
  uint32_t refused; /* CW_PROF_MEMORY without a descriptor: errno */
  uint64_t size;    /* CW_PROF_SIZE, the sender's */
};

#ifdef __cplusplus
#define CW_PROF_CHECK(what) static_assert(what, #what)
#else
#define CW_PROF_CHECK(what) _Static_assert(what, #what)
#endif
CW_PROF_CHECK(sizeof(struct cw_prof_comm) == 128);
CW_PROF_CHECK(sizeof(struct cw_prof_coll) == 64);
CW_PROF_CHECK(sizeof(struct cw_prof_qp) == 40);
CW_PROF_CHECK(offsetof(struct cw_prof_op, qp) == 128);
CW_PROF_CHECK(sizeof(struct cw_prof_op) == 456);
CW_PROF_CHECK(sizeof(struct cw_prof_step) == 40);
CW_PROF_CHECK(sizeof(struct cw_prof_net) == 40);
CW_PROF_CHECK(sizeof(struct cw_prof_record) == 128);
CW_PROF_CHECK(sizeof(struct cw_prof_counts) == 128);
CW_PROF_CHECK(offsetof(struct cw_prof_shared, counts) == 256);
CW_PROF_CHECK(offsetof(struct cw_prof_shared, head) == 384);
CW_PROF_CHECK(offsetof(struct cw_prof_shared, comm) == 4096);
CW_PROF_CHECK(sizeof(struct cw_prof_hello) == 24);

#endif
