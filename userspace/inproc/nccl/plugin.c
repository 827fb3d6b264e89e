/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL loads: versions 4 to 7 of its profiler interface. Every call returns 0, whatever happens: a profiler
 * must not end a training. */
#include <stdlib.h>
#include <string.h>

#include "userspace/inproc/nccl/internal.h"

static int wanted_mask(void) {
  const char* off = secure_getenv("CWFABRIC_NCCL_PROFILER");
  const char* kernel = secure_getenv("CWFABRIC_NCCL_PROFILER_KERNEL");
  int mask = CW_NCCL_COLL | CW_NCCL_P2P | CW_NCCL_PROXY_OP | CW_NCCL_PROXY_STEP | CW_NCCL_NET_PLUGIN;
  if (off && strcmp(off, "off") == 0) return 0;
  if (kernel && strcmp(kernel, "1") == 0) mask |= CW_NCCL_KERNEL_CH;
  return mask;
}

static int init(int version, void** context, int* mask, uint64_t id, const char* name, int nodes, int ranks, int rank,
                cw_nccl_log log) {
  int wanted = wanted_mask();
  struct cwp_context* made;
  *context = NULL;
  cwp_open_chain(version);
  if (!wanted && !cwp_has_chain(version)) return 0;
  made = calloc(1, sizeof(*made));
  if (!made) return 0;
  made->version = version;
  if (wanted && cwp_open_memory()) made->comm = cwp_comm_start(version, id, name, nodes, ranks, rank);
  if (!made->comm) wanted = 0;
  if (cwp_has_chain(version)) wanted |= cwp_chain_init(made, id, name, nodes, ranks, rank, log);
  *context = made;
  __atomic_fetch_or(mask, wanted, __ATOMIC_RELAXED); /* other communicators of the process have it in common */
  return 0;
}

static int init4(void** context, int* mask, const char* name, uint64_t hash, int nodes, int ranks, int rank,
                 cw_nccl_log log) {
  return init(4, context, mask, hash, name, nodes, ranks, rank, log);
}

static int init5(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                 cw_nccl_log log) {
  return init(5, context, mask, id, name, nodes, ranks, rank, log);
}

static int init6(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                 cw_nccl_log log) {
  return init(6, context, mask, id, name, nodes, ranks, rank, log);
}

static int init7(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                 cw_nccl_log log) {
  return init(7, context, mask, id, name, nodes, ranks, rank, log);
}

static int start(struct cwp_context* context, uint32_t type, void** handle, struct cw_nccl_event* event) {
  *handle = NULL;
  if (!context) return 0;
  if (context->chained) {
    cwp_chain_start(context, type, handle, event);
  } else if (context->comm) {
    *handle = (void*)(uintptr_t)cwp_event_start(context->comm, type, (uint64_t)(uintptr_t)event->parent, event);
  }
  return 0;
}

/* The type is one byte there, and what follows it is nobody's. */
static int start4(void* context, void** handle, struct cw_nccl_event* event) {
  uint8_t type;
  memcpy(&type, event, sizeof(type));
  return start(context, type, handle, event);
}

static int start5(void* context, void** handle, struct cw_nccl_event* event) {
  return start(context, (uint32_t)event->type, handle, event);
}

static int stop(void* handle) {
  const uint64_t number = (uint64_t)(uintptr_t)handle;
  if (!number) return 0;
  if (cw_prof_handle_kind(number) == CW_PROF_PAIR) {
    cwp_chain_stop(number);
  } else {
    cwp_event_stop(number);
  }
  return 0;
}

static int state(void* handle, int what, union cw_nccl_state_args* args) {
  const uint64_t number = (uint64_t)(uintptr_t)handle;
  if (!number) return 0;
  if (cw_prof_handle_kind(number) == CW_PROF_PAIR) {
    cwp_chain_state(number, what, args);
  } else {
    cwp_event_state(number, what, args);
  }
  return 0;
}

static int finalize(void* context) {
  struct cwp_context* ours = context;
  if (!ours) return 0;
  cwp_chain_finalize(ours);
  if (ours->comm) cwp_comm_end(ours->comm);
  cwp_mirror(); /* the process may end now */
  free(ours);
  return 0;
}

#define CW_EXPORT __attribute__((visibility("default")))
CW_EXPORT struct cw_nccl_profiler ncclProfiler_v4 = {"cwfabric", {.v4 = init4}, start4, stop, state, finalize};
CW_EXPORT struct cw_nccl_profiler ncclProfiler_v5 = {"cwfabric", {.v5 = init5}, start5, stop, state, finalize};
CW_EXPORT struct cw_nccl_profiler ncclProfiler_v6 = {"cwfabric", {.v5 = init6}, start5, stop, state, finalize};

/* A fork's version 7 has one optional function more at the end of the table: there is none. */
CW_EXPORT struct {
  struct cw_nccl_profiler table;
  void* none;
} ncclProfiler_v7 = {{"cwfabric", {.v5 = init7}, start5, stop, state, finalize}, NULL};
