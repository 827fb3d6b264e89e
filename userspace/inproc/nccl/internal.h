/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-in's own parts. All of it is safe from any thread; nothing waits but link.c's thread,
 * and the end of a communicator, for the mirror. */
#ifndef CW_NCCL_INTERNAL_H
#define CW_NCCL_INTERNAL_H
#include <stdint.h>
#include <time.h>

#include "userspace/inproc/nccl/cw_profiler.h"
#include "userspace/inproc/nccl/nccl_profiler.h"

/* One communicator, as NCCL holds it. */
struct cwp_context {
  uint64_t comm; /* handle */
  int version;   /* of the interface: 4 to 7 */
  void* chained; /* the other profiler's context, see chain.c */
};

/* memory.c: what the agent is to see of this process; null before the first communicator, and in a child after fork. */
extern struct cw_prof_shared* cwp_shared;
struct cw_prof_shared* cwp_open_memory(void); /* null: there is none to be had */

/* mirror.c: the copy of it in the agent's memory. `memory`: the agent's descriptor, which stays the caller's; 0: it is
 * not what was agreed. */
int cwp_open_mirror(int memory);
int cwp_has_mirror(void);
void cwp_mirror(void); /* copies what is new, if there is a mirror */
void cwp_close_mirror(void);
void cwp_forget_mirror(void); /* in a child after fork */

/* pool.c: free slots, last in first out, so that the ones in use stay in the processor's cache. */
enum { CWP_POOL_COMM, CWP_POOL_OP, CWP_POOL_STEP, CWP_POOL_NET, CWP_POOL_PAIR, CWP_POOLS };
#define CWP_PAIRS 32768
void cwp_reset_pool(int pool); /* all free; nobody may use it meanwhile */
int64_t cwp_take(int pool);    /* its index; -1: none is free */
void cwp_give(int pool, uint32_t index);

/* Generations: odd while the slot is live. */
static inline uint32_t cwp_generation(const uint32_t* generation) {
  return __atomic_load_n(generation, __ATOMIC_ACQUIRE);
}
static inline int cwp_is(const uint32_t* generation, uint64_t handle) {
  const uint32_t now = cwp_generation(generation);
  return (now & 1) && (now & 0xfffffff) == cw_prof_handle_generation(handle);
}
/* Its new generation, which makes it live: after everything else of it is written. */
static inline uint32_t cwp_live(uint32_t* generation) {
  const uint32_t next = cwp_generation(generation) + 1;
  __atomic_store_n(generation, next, __ATOMIC_RELEASE);
  return next;
}
/* 1 for the one caller that ends it. */
static inline int cwp_end(uint32_t* generation, uint64_t handle) {
  uint32_t now = cwp_generation(generation);
  if (!(now & 1) || (now & 0xfffffff) != cw_prof_handle_generation(handle)) return 0;
  return __atomic_compare_exchange_n(generation, &now, now + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
static inline void cwp_count(uint64_t* counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }
static inline uint64_t cwp_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ring.c */
struct cw_prof_record* cwp_ring_begin(struct cw_prof_shared* shared, int type, uint64_t coll, uint64_t now_ns);
void cwp_ring_end(struct cw_prof_record* record);

/* chunks.c: when single chunks of an operation were posted or complete. Calls for one operation come from one thread,
 * NCCL's proxy. op: its slot; qp: its place in that slot. */
void cwp_chunks_begin(const struct cw_prof_shared* shared, uint32_t op);
uint32_t cwp_chunk_post(uint32_t op, uint32_t qp); /* its number */
void cwp_chunk_stamp(uint32_t op, uint32_t qp, uint32_t number, uint64_t now_ns);
void cwp_chunks_put(struct cw_prof_shared* shared, uint64_t handle, const struct cw_prof_op* op, uint64_t now_ns);

/* events.c: what NCCL tells. Handles are numbers of cw_profiler.h; 0 = not wanted, or no room. */
uint64_t cwp_comm_start(int version, uint64_t id, const char* name, int nodes, int ranks, int rank);
void cwp_comm_end(uint64_t comm);
uint64_t cwp_event_start(uint64_t comm, uint32_t type, uint64_t parent, const struct cw_nccl_event* event);
void cwp_event_stop(uint64_t handle);
void cwp_event_state(uint64_t handle, int state, const union cw_nccl_state_args* args);
extern int32_t cwp_pid;

/* link.c: tells the agent of the memory, and again when the agent is another one. */
void cwp_start_link(void);
void cwp_forget_link(void); /* in a child after fork */

/* chain.c: a second profiler behind this one. */
void cwp_open_chain(int version);
int cwp_has_chain(int version);
/* Of the other profiler's events; 0: it takes none. */
int cwp_chain_init(struct cwp_context* context, uint64_t id, const char* name, int nodes, int ranks, int rank,
                   cw_nccl_log log);
void cwp_chain_finalize(struct cwp_context* context);
void cwp_chain_start(const struct cwp_context* context, uint32_t type, void** handle, struct cw_nccl_event* event);
void cwp_chain_stop(uint64_t handle);
void cwp_chain_state(uint64_t handle, int state, union cw_nccl_state_args* args);

#endif
