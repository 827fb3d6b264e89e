/* SPDX-License-Identifier: Apache-2.0 */
/* A profiler behind ours, for nccl_chain_test: its handles are its own events, so that a wrong one would be seen. */
#include <stddef.h>

#include "userspace/inproc/nccl/nccl_profiler.h"

#define EVENTS 4096
struct event {
  int magic, open;
  unsigned type;
};
struct chain_counts {
  int inits, finalizes, starts, stops, states, wrong;
};
__attribute__((visibility("default"))) struct chain_counts chain_counts;
static struct event events[EVENTS];
static int used, contexts;

static struct event* as_event(void* handle) {
  struct event* event = handle;
  if (event < events || event >= events + EVENTS || event->magic != 0x600d || !event->open) {
    ++chain_counts.wrong;
    return NULL;
  }
  return event;
}

static int init(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                cw_nccl_log log) {
  (void)id, (void)name, (void)nodes, (void)ranks, (void)rank, (void)log;
  ++chain_counts.inits;
  *mask = CW_NCCL_GROUP_API | CW_NCCL_COLL_API | CW_NCCL_COLL | CW_NCCL_PROXY_OP | CW_NCCL_PROXY_STEP;
  *context = &contexts;
  return 0;
}

static int start(void* context, void** handle, struct cw_nccl_event* of) {
  struct event* parent = of->parent ? as_event(of->parent) : NULL;
  struct event* event = &events[used++ % EVENTS];
  const unsigned type = (unsigned)of->type;
  if (context != &contexts) ++chain_counts.wrong;
  if (type == CW_NCCL_COLL && (!parent || parent->type != CW_NCCL_COLL_API)) ++chain_counts.wrong;
  if (type == CW_NCCL_PROXY_OP && (!parent || parent->type != CW_NCCL_COLL)) ++chain_counts.wrong;
  if (type == CW_NCCL_PROXY_STEP && (!parent || parent->type != CW_NCCL_PROXY_OP)) ++chain_counts.wrong;
  if (type == CW_NCCL_NET_PLUGIN) ++chain_counts.wrong; /* not in its mask */
  event->magic = 0x600d;
  event->open = 1;
  event->type = type;
  ++chain_counts.starts;
  *handle = event;
  return 0;
}

/* A collective stays open: its operations name it after its stop. */
static int stop(void* handle) {
  struct event* event = as_event(handle);
  ++chain_counts.stops;
  if (event && event->type != CW_NCCL_COLL) event->open = 0;
  return 0;
}

static int state(void* handle, int what, union cw_nccl_state_args* args) {
  (void)what, (void)args;
  ++chain_counts.states;
  as_event(handle);
  return 0;
}

static int finalize(void* context) {
  if (context != &contexts) ++chain_counts.wrong;
  ++chain_counts.finalizes;
  return 0;
}

__attribute__((visibility("default"))) struct cw_nccl_profiler ncclProfiler_v6 = {"other", {.v5 = init}, start,
                                                                                  stop,    state,        finalize};
