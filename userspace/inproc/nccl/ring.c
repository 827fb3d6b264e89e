/* SPDX-License-Identifier: Apache-2.0 */
#include "userspace/inproc/nccl/internal.h"

/* The oldest record makes room. A writer that stands still for a whole turn of the ring would finish in another's
 * record: the reader takes every number for a claim, so that costs one wrong record. */
struct cw_prof_record* cwp_ring_begin(struct cw_prof_shared* shared, int type, uint64_t coll, uint64_t now_ns) {
  const uint64_t ticket = __atomic_fetch_add(&shared->head, 1, __ATOMIC_RELAXED);
  struct cw_prof_record* record = &shared->ring[ticket % CW_PROF_RING];
  __atomic_store_n(&record->seq, 2 * ticket + 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  record->type = (uint8_t)type;
  record->channel = record->is_send = record->is_p2p = 0;
  record->pid = cwp_pid;
  record->time_ns = now_ns;
  record->coll = coll;
  return record;
}

void cwp_ring_end(struct cw_prof_record* record) { __atomic_store_n(&record->seq, record->seq + 1, __ATOMIC_RELEASE); }
