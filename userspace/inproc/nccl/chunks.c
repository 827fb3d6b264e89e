/* SPDX-License-Identifier: Apache-2.0 */
/* When single chunks of an operation were posted, or complete. They are kept here, not in the shared memory, until the
 * operation ends. Which chunks are stamped follows from their numbers alone, so both ends stamp the same ones: of n on
 * a queue pair those whose number is a multiple of the smallest power of two that leaves CW_PROF_STAMPS of them. */
#include <string.h>

#include "userspace/inproc/nccl/internal.h"

struct chunks {
  uint32_t posted, stride, count;
  uint32_t number[CW_PROF_STAMPS];
  uint64_t ns[CW_PROF_STAMPS];
};

static struct {
  uint64_t lost; /* when the operation began */
  struct chunks qp[CW_PROF_OP_QPS];
} ops[CW_PROF_OPS];

/* Events without which the numbers of some operation are wrong. Which one's is not known: all that run are unsure. */
static uint64_t lost(const struct cw_prof_shared* shared) {
  const struct cw_prof_counts* counts = &shared->counts;
  return __atomic_load_n(&counts->no_step, __ATOMIC_RELAXED) + __atomic_load_n(&counts->no_net, __ATOMIC_RELAXED) +
         __atomic_load_n(&counts->orphan, __ATOMIC_RELAXED) + __atomic_load_n(&counts->stale, __ATOMIC_RELAXED);
}

void cwp_chunks_begin(const struct cw_prof_shared* shared, uint32_t op) {
  ops[op].lost = lost(shared);
  for (int i = 0; i < CW_PROF_OP_QPS; ++i) {
    ops[op].qp[i].posted = ops[op].qp[i].count = 0;
    ops[op].qp[i].stride = 1;
  }
}

uint32_t cwp_chunk_post(uint32_t op, uint32_t qp) {
  struct chunks* chunks = &ops[op].qp[qp];
  return chunks->posted < CW_PROF_MOST_CHUNKS ? chunks->posted++ : CW_PROF_MOST_CHUNKS;
}

/* Every second one makes room. */
static void thin(struct chunks* chunks) {
  uint32_t kept = 0;
  chunks->stride *= 2;
  for (uint32_t i = 0; i < chunks->count; ++i) {
    if (chunks->number[i] % chunks->stride != 0) continue;
    chunks->number[kept] = chunks->number[i];
    chunks->ns[kept++] = chunks->ns[i];
  }
  chunks->count = kept;
}

void cwp_chunk_stamp(uint32_t op, uint32_t qp, uint32_t number, uint64_t now_ns) {
  struct chunks* chunks;
  if (qp >= CW_PROF_OP_QPS || number >= CW_PROF_MOST_CHUNKS) return;
  chunks = &ops[op].qp[qp];
  while (number >= chunks->stride * CW_PROF_STAMPS) thin(chunks);
  if (number % chunks->stride != 0 || chunks->count >= CW_PROF_STAMPS) return;
  chunks->number[chunks->count] = number;
  chunks->ns[chunks->count++] = now_ns;
}

static void put(struct cw_prof_record* record, const struct chunks* chunks) {
  uint64_t base_ns = UINT64_MAX;
  for (uint32_t i = 0; i < chunks->count; ++i) {
    if (chunks->ns[i] < base_ns) base_ns = chunks->ns[i];
  }
  record->u.chunks.base_ns = base_ns;
  record->u.chunks.posted = chunks->posted;
  record->u.chunks.count = 0;
  for (uint32_t i = 0; i < chunks->count; ++i) {
    const uint64_t after_ns = chunks->ns[i] - base_ns;
    if (after_ns > UINT32_MAX) continue;
    record->u.chunks.stamp[record->u.chunks.count].number = chunks->number[i];
    record->u.chunks.stamp[record->u.chunks.count++].after_ns = (uint32_t)after_ns;
  }
}

void cwp_chunks_put(struct cw_prof_shared* shared, uint64_t handle, const struct cw_prof_op* op, uint64_t now_ns) {
  const uint32_t index = cw_prof_handle_index(handle);
  const int unsure = ops[index].lost != lost(shared);
  for (uint32_t i = 0; i < op->qps && i < CW_PROF_OP_QPS; ++i) {
    const struct chunks* chunks = &ops[index].qp[i];
    struct cw_prof_record* record;
    if (chunks->count == 0) continue;
    record = cwp_ring_begin(shared, CW_PROF_CHUNKS, op->coll, now_ns);
    record->pid = op->pid;
    record->channel = op->channel;
    record->is_send = op->is_send;
    memset(&record->u.chunks, 0, sizeof(record->u.chunks));
    record->u.chunks.op = handle;
    record->u.chunks.qpn = op->qp[i].qpn;
    record->u.chunks.unsure = unsure || chunks->posted >= CW_PROF_MOST_CHUNKS;
    put(record, chunks);
    cwp_ring_end(record);
  }
}
