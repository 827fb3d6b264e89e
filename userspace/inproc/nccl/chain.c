/* SPDX-License-Identifier: Apache-2.0 */
/* A second profiler behind this one: NCCL loads one alone. CWFABRIC_NCCL_PROFILER_CHAIN names its library; it gets
 * every event of its mask, with its own handles as parents. A pair is what NCCL holds: our handle and the other's. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "userspace/inproc/nccl/internal.h"

#if defined(__x86_64__) && defined(__GLIBC__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
#endif

struct pair {
  uint32_t generation;
  int version;
  uint64_t own;
  void* other;
};

static struct pair pairs[CWP_PAIRS];
static const struct cw_nccl_profiler* others[8]; /* by version; null: not asked for, or it has none */
static int other_mask;                           /* which the other may change at any time */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

void cwp_open_chain(int version) {
  static const char* const names[] = {"ncclProfiler_v4", "ncclProfiler_v5", "ncclProfiler_v6", "ncclProfiler_v7"};
  static void* library;
  const char* path = secure_getenv("CWFABRIC_NCCL_PROFILER_CHAIN");
  if (!path || !*path) return;
  pthread_mutex_lock(&opening);
  if (!library) {
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cwp_reset_pool(CWP_POOL_PAIR);
  }
  if (library && !others[version]) others[version] = dlsym(library, names[version - 4]);
  pthread_mutex_unlock(&opening);
}

int cwp_has_chain(int version) { return others[version] != NULL; }

int cwp_chain_init(struct cwp_context* context, uint64_t id, const char* name, int nodes, int ranks, int rank,
                   cw_nccl_log log) {
  const struct cw_nccl_profiler* other = others[context->version];
  const int failed = context->version == 4
                         ? other->init.v4(&context->chained, &other_mask, name, id, nodes, ranks, rank, log)
                         : other->init.v5(&context->chained, id, &other_mask, name, nodes, ranks, rank, log);
  if (failed) context->chained = NULL;
  return failed ? 0 : __atomic_load_n(&other_mask, __ATOMIC_RELAXED);
}

void cwp_chain_finalize(struct cwp_context* context) {
  if (context->chained) (void)others[context->version]->finalize(context->chained);
}

static const struct pair* find(uint64_t handle) {
  const uint32_t index = cw_prof_handle_index(handle);
  if (cw_prof_handle_kind(handle) != CW_PROF_PAIR || index >= CWP_PAIRS) return NULL;
  return cwp_is(&pairs[index].generation, handle) ? &pairs[index] : NULL;
}

/* The other's handles are its own process' addresses: none for an operation of another process. */
static void* other_parent(uint32_t type, const struct cw_nccl_event* event) {
  const struct pair* pair = find((uint64_t)(uintptr_t)event->parent);
  if (type == CW_NCCL_PROXY_OP && event->u.op.pid != getpid()) return NULL;
  return pair ? pair->other : NULL;
}

static void* start_other(const struct cwp_context* context, uint32_t type, const struct cw_nccl_event* event) {
  struct cw_nccl_event copy;
  void* handle = NULL;
  if (!context->chained || !(__atomic_load_n(&other_mask, __ATOMIC_RELAXED) & (int)type)) return NULL;
  memset(&copy, 0, sizeof(copy));
  memcpy(&copy, event, cw_nccl_event_size(context->version));
  copy.parent = other_parent(type, event);
  if (context->version > 4) {
    void** group = type == CW_NCCL_COLL  ? &copy.u.coll.parent_group
                   : type == CW_NCCL_P2P ? &copy.u.p2p.parent_group
                                         : NULL;
    const struct pair* pair = group ? find((uint64_t)(uintptr_t)*group) : NULL;
    if (group) *group = pair ? pair->other : NULL;
  }
  if (others[context->version]->start(context->chained, &handle, &copy) != 0) return NULL;
  return handle;
}

void cwp_chain_start(const struct cwp_context* context, uint32_t type, void** handle, struct cw_nccl_event* event) {
  const struct pair* parent = find((uint64_t)(uintptr_t)event->parent);
  /* A handle of another process stays what it is: a number. */
  const int foreign = type == CW_NCCL_PROXY_OP && event->u.op.pid != cwp_pid;
  const uint64_t own_parent = foreign ? (uint64_t)(uintptr_t)event->parent : parent ? parent->own : 0;
  void* other;
  uint64_t own;
  int64_t index;
  *handle = NULL;
  /* First the slot: without one nothing begins that could not be ended. */
  index = cwp_take(CWP_POOL_PAIR);
  if (index < 0) {
    struct cw_prof_shared* shared = __atomic_load_n(&cwp_shared, __ATOMIC_ACQUIRE);
    if (shared) cwp_count(&shared->counts.no_op);
    return;
  }
  own = context->comm ? cwp_event_start(context->comm, type, own_parent, event) : 0;
  other = start_other(context, type, event);
  if (!own && !other) {
    cwp_give(CWP_POOL_PAIR, (uint32_t)index);
    return;
  }
  pairs[index].version = context->version;
  pairs[index].own = own;
  pairs[index].other = other;
  *handle = (void*)(uintptr_t)cw_prof_handle(CW_PROF_PAIR, cwp_live(&pairs[index].generation), (uint32_t)index);
}

/* The pair of a collective has to outlive its stop, because children name it as their parent. Such pairs are kept in a
 * queue of their own and end in turn. */
#define LATE 8192
static uint64_t late[LATE];
static uint32_t late_turn;

static void end_pair(uint64_t handle) {
  const uint32_t index = cw_prof_handle_index(handle);
  if (cw_prof_handle_kind(handle) != CW_PROF_PAIR || index >= CWP_PAIRS) return;
  if (cwp_end(&pairs[index].generation, handle)) cwp_give(CWP_POOL_PAIR, index);
}

void cwp_chain_stop(uint64_t handle) {
  const struct pair* pair = find(handle);
  uint64_t own;
  if (!pair) return;
  own = pair->own;
  if (own) cwp_event_stop(own);
  if (pair->other) (void)others[pair->version]->stop(pair->other);
  if (own && cw_prof_handle_kind(own) != CW_PROF_COLL) {
    end_pair(handle);
  } else {
    const uint32_t turn = __atomic_fetch_add(&late_turn, 1, __ATOMIC_RELAXED) % LATE;
    end_pair(__atomic_exchange_n(&late[turn], handle, __ATOMIC_ACQ_REL));
  }
}

void cwp_chain_state(uint64_t handle, int state, union cw_nccl_state_args* args) {
  const struct pair* pair = find(handle);
  if (!pair) return;
  if (pair->own) cwp_event_state(pair->own, state, args);
  if (pair->other) (void)others[pair->version]->state(pair->other, state, args);
}
