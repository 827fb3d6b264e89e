/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's profiler interface, versions 4 to 7, as its binary layout is (x86-64, measured on NCCL 2.27 to 2.30, 7 read in
 * its source): own declarations of the parts that are used here. Sizes and offsets are checked below. */
#ifndef CW_NCCL_PROFILER_H
#define CW_NCCL_PROFILER_H
#include <stddef.h>
#include <stdint.h>

enum { /* types of events, and bits of the activation mask */
       CW_NCCL_GROUP = 1,
       CW_NCCL_COLL = 2,
       CW_NCCL_P2P = 4,
       CW_NCCL_PROXY_OP = 8,
       CW_NCCL_PROXY_STEP = 16,
       CW_NCCL_PROXY_CTRL = 32,
       CW_NCCL_KERNEL_CH = 64,
       CW_NCCL_NET_PLUGIN = 128,
       CW_NCCL_GROUP_API = 256,
       CW_NCCL_COLL_API = 512,
       CW_NCCL_P2P_API = 1024,
       CW_NCCL_KERNEL_LAUNCH = 2048,
};

enum { /* states of recordEventState */
       CW_NCCL_SEND_GPU_WAIT = 8,
       CW_NCCL_SEND_WAIT = 9,
       CW_NCCL_RECV_WAIT = 10,
       CW_NCCL_RECV_FLUSH_WAIT = 11,
       CW_NCCL_RECV_GPU_WAIT = 12,
       CW_NCCL_OP_IN_PROGRESS = 19,
       CW_NCCL_SEND_PEER_WAIT = 20,
       CW_NCCL_NET_UPDATE = 21,
       CW_NCCL_KERNEL_CH_STOP = 22,
};

/* What an event is about. In version 4 the type is one byte and there is no parent_group. Before version 7 it ends
 * behind that: see the sizes below. */
struct cw_nccl_event {
  uint64_t type;
  void* parent;
  int32_t rank;
  int32_t pad;
  union {
    struct {
      uint64_t seq;
      const char* function;
      const void* send;
      void* receive;
      size_t count;
      int32_t root;
      int32_t pad;
      const char* datatype;
      uint8_t channels;
      uint8_t warps;
      const char* algorithm;
      const char* protocol;
      void* parent_group;         /* version 5 and later */
      const char* kernel_variant; /* version 7, as what follows */
      uint8_t symmetric;
      uint64_t user_tag; /* 0: none */
    } coll;
    struct {
      const char* function;
      void* buffer;
      const char* datatype;
      size_t count;
      int32_t peer;
      uint8_t channels;
      void* parent_group; /* version 5 and later */
      uint64_t user_tag;  /* version 7 */
    } p2p;
    struct {
      int32_t pid;
      uint8_t channel;
      int32_t peer;
      int32_t steps;
      int32_t chunk;
      int32_t is_send;
    } op;
    struct {
      int32_t step;
    } step;
    struct {
      uint8_t channel;
      uint64_t gpu_timer;
    } kernel;
    struct {
      int64_t id;
      void* data;
    } net;
  } u;
};

enum { CW_NCCL_NET_IB_1 = 1 << 16 | 1 }; /* net.id: kind of network << 16 | version of what data points to */

/* net.data of InfiniBand and RoCE, version 1. On the receiving side length and opcode are not set. */
struct cw_nccl_net_ib {
  uint8_t type; /* 1: queue pair */
  uint8_t pad[7];
  int32_t device;
  int32_t pad2;
  uint64_t wr_id;
  int32_t opcode;
  int32_t qpn;
  size_t length;
};

union cw_nccl_state_args {
  size_t step_bytes;
  int32_t appended;
  void* data;
  uint64_t gpu_timer;
};

typedef void (*cw_nccl_log)(int level, unsigned long subsystem, const char* file, int line, const char* format, ...);
typedef int (*cw_nccl_init4)(void** context, int* mask, const char* name, uint64_t hash, int nodes, int ranks, int rank,
                             cw_nccl_log log);
typedef int (*cw_nccl_init5)(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                             cw_nccl_log log);

/* The tables differ in init alone, and in what events hold. All functions return 0. */
struct cw_nccl_profiler {
  const char* name;
  union {
    cw_nccl_init4 v4;
    cw_nccl_init5 v5;
  } init;
  int (*start)(void* context, void** handle, struct cw_nccl_event* event);
  int (*stop)(void* handle);
  int (*state)(void* handle, int state, union cw_nccl_state_args* args);
  int (*finalize)(void* context);
};

#ifdef __cplusplus
#define CW_NCCL_CHECK(what) static_assert(what, #what)
#else
#define CW_NCCL_CHECK(what) _Static_assert(what, #what)
#endif
#define CW_NCCL_AT(field, at) CW_NCCL_CHECK(offsetof(struct cw_nccl_event, field) == (at))
CW_NCCL_CHECK(sizeof(struct cw_nccl_event) == 136);
CW_NCCL_CHECK(sizeof(struct cw_nccl_profiler) == 48);
CW_NCCL_CHECK(sizeof(struct cw_nccl_net_ib) == 40);
CW_NCCL_CHECK(offsetof(struct cw_nccl_net_ib, wr_id) == 16 && offsetof(struct cw_nccl_net_ib, opcode) == 24);
CW_NCCL_CHECK(offsetof(struct cw_nccl_net_ib, qpn) == 28 && offsetof(struct cw_nccl_net_ib, length) == 32);
CW_NCCL_AT(parent, 8);
CW_NCCL_AT(rank, 16);
CW_NCCL_AT(u, 24);
CW_NCCL_AT(u.coll.function, 32);
CW_NCCL_AT(u.coll.count, 56);
CW_NCCL_AT(u.coll.datatype, 72);
CW_NCCL_AT(u.coll.channels, 80);
CW_NCCL_AT(u.coll.algorithm, 88);
CW_NCCL_AT(u.coll.protocol, 96);
CW_NCCL_AT(u.coll.parent_group, 104);
CW_NCCL_AT(u.coll.kernel_variant, 112);
CW_NCCL_AT(u.coll.symmetric, 120);
CW_NCCL_AT(u.coll.user_tag, 128);
CW_NCCL_AT(u.p2p.datatype, 40);
CW_NCCL_AT(u.p2p.count, 48);
CW_NCCL_AT(u.p2p.peer, 56);
CW_NCCL_AT(u.p2p.channels, 60);
CW_NCCL_AT(u.p2p.parent_group, 64);
CW_NCCL_AT(u.p2p.user_tag, 72);
CW_NCCL_AT(u.op.channel, 28);
CW_NCCL_AT(u.op.peer, 32);
CW_NCCL_AT(u.op.steps, 36);
CW_NCCL_AT(u.op.chunk, 40);
CW_NCCL_AT(u.op.is_send, 44);
CW_NCCL_AT(u.kernel.gpu_timer, 32);
CW_NCCL_AT(u.net.data, 32);
/* Of an event as NCCL hands it over: nothing beyond is its own. */
static inline size_t cw_nccl_event_size(int version) { return version == 4 ? 104 : version < 7 ? 112 : 136; }

#endif
