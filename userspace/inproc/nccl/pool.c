/* SPDX-License-Identifier: Apache-2.0 */
#include "userspace/inproc/nccl/internal.h"

/* A stack of free slots. The tag changes with every take, so that a head which looks the same is the same. */
struct pool {
  _Alignas(64) uint64_t head; /* tag << 32 | index + 1; 0 in the low half: empty */
  uint32_t* next;             /* index + 1 of the one below */
  uint32_t size;
};

static uint32_t next_comm[CW_PROF_COMMS], next_op[CW_PROF_OPS], next_step[CW_PROF_STEPS], next_net[CW_PROF_NETS],
    next_pair[CWP_PAIRS];
static struct pool pools[CWP_POOLS] = {
    {0, next_comm, CW_PROF_COMMS}, {0, next_op, CW_PROF_OPS}, {0, next_step, CW_PROF_STEPS},
    {0, next_net, CW_PROF_NETS},   {0, next_pair, CWP_PAIRS},
};

void cwp_reset_pool(int p) {
  struct pool* pool = &pools[p];
  for (uint32_t i = 0; i < pool->size; ++i) pool->next[i] = i + 2;
  pool->next[pool->size - 1] = 0;
  __atomic_store_n(&pool->head, 1, __ATOMIC_RELEASE);
}

int64_t cwp_take(int p) {
  struct pool* pool = &pools[p];
  uint64_t head = __atomic_load_n(&pool->head, __ATOMIC_ACQUIRE);
  while (1) {
    const uint32_t top = (uint32_t)head;
    uint64_t below;
    if (top == 0) return -1;
    below = ((head >> 32) + 1) << 32 | __atomic_load_n(&pool->next[top - 1], __ATOMIC_RELAXED);
    if (__atomic_compare_exchange_n(&pool->head, &head, below, 1, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return top - 1;
  }
}

void cwp_give(int p, uint32_t index) {
  struct pool* pool = &pools[p];
  uint64_t head = __atomic_load_n(&pool->head, __ATOMIC_ACQUIRE);
  uint64_t above;
  do {
    __atomic_store_n(&pool->next[index], (uint32_t)head, __ATOMIC_RELAXED);
    above = (head & ~0xffffffffull) | (index + 1);
  } while (!__atomic_compare_exchange_n(&pool->head, &head, above, 1, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}
