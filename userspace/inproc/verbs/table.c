/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts by address, queue pairs by context and number: open addressing in fixed tables, so that a reader needs no
 * lock and nothing is ever allocated. The tables are zero pages until they are used. */
#include <string.h>

#include "userspace/inproc/verbs/internal.h"

#define MOST_STEPS 64u
#define REMOVED UINT64_MAX

static struct cwv_context contexts[CWV_MAX_CONTEXTS];
static _Atomic uint64_t keys[CWV_MAX_QPS]; /* 0: never used */
static struct cwv_qp qps[CWV_MAX_QPS];
static _Atomic bool used; /* most processes that are preloaded have no queue pair: their tables stay untouched */

static uint32_t first_of_context(const struct ibv_context* context) {
  return (uint32_t)(((uintptr_t)context >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (CWV_MAX_CONTEXTS - 1);
}

struct cwv_context* cwv_find_context(const struct ibv_context* context) {
  const uint32_t first = first_of_context(context);
  for (uint32_t i = 0; i < CWV_MAX_CONTEXTS; i++) {
    struct cwv_context* at = &contexts[(first + i) & (CWV_MAX_CONTEXTS - 1)];
    const struct ibv_context* key = atomic_load_explicit(&at->context, memory_order_acquire);
    if (key == context) return at;
    if (!key && !at->poll_cq) return 0; /* a removed one keeps its functions, and the search goes on behind it */
  }
  return 0;
}

struct cwv_context* cwv_add_context(struct ibv_context* context, const struct cwv_provider* provider) {
  const uint32_t first = first_of_context(context);
  for (uint32_t i = 0; i < CWV_MAX_CONTEXTS; i++) {
    struct cwv_context* at = &contexts[(first + i) & (CWV_MAX_CONTEXTS - 1)];
    if (atomic_load(&at->context)) continue;
    at->post_send = context->ops.post_send;
    at->poll_cq = context->ops.poll_cq;
    at->create_qp_ex = 0;
    at->provider = *provider;
    at->refused_port = 0;
    at->no_bond = false;
    atomic_store_explicit(&at->context, context, memory_order_release);
    return at;
  }
  return 0;
}

void cwv_remove_context(struct cwv_context* context) { atomic_store(&context->context, 0); }

static uint64_t key_of(const struct cwv_context* context, uint32_t qpn) {
  return (uint64_t)(context - contexts + 1) << 24 | (qpn & 0xffffffu);
}

static uint32_t first_of_qp(uint64_t key) { return (uint32_t)(key ^ (key >> 24) * 0x9e5u) & (CWV_MAX_QPS - 1); }

struct cwv_qp* cwv_find_qp(const struct cwv_context* context, uint32_t qpn) {
  const uint64_t key = key_of(context, qpn);
  const uint32_t first = first_of_qp(key);
  for (uint32_t i = 0; i < MOST_STEPS; i++) {
    const uint32_t place = (first + i) & (CWV_MAX_QPS - 1);
    const uint64_t at = atomic_load_explicit(&keys[place], memory_order_acquire);
    if (at == key) return &qps[place];
    if (at == 0) return 0;
  }
  return 0;
}

struct cwv_qp* cwv_find_qp_of_address(const uint8_t laddr[16], uint32_t qpn) {
  for (uint32_t i = 0; i < CWV_MAX_CONTEXTS; i++) {
    struct cwv_qp* qp = atomic_load(&contexts[i].context) ? cwv_find_qp(&contexts[i], qpn) : 0;
    if (qp && qp->known && !memcmp(qp->self.laddr, laddr, 16)) return qp;
  }
  return 0;
}

struct cwv_qp* cwv_add_qp(const struct cwv_context* context, uint32_t qpn) {
  const uint64_t key = key_of(context, qpn);
  const uint32_t first = first_of_qp(key);
  for (uint32_t i = 0; i < MOST_STEPS; i++) {
    const uint32_t place = (first + i) & (CWV_MAX_QPS - 1);
    const uint64_t at = atomic_load(&keys[place]);
    if (at != 0 && at != REMOVED) continue;
    memset(&qps[place], 0, sizeof(qps[place]));
    used = true;
    atomic_store_explicit(&keys[place], key, memory_order_release);
    return &qps[place];
  }
  return 0;
}

void cwv_remove_qp(struct cwv_qp* qp) { atomic_store(&keys[qp - qps], REMOVED); }

uint32_t cwv_places(void) { return used ? CWV_MAX_QPS : 0; }

struct cwv_qp* cwv_qp_at(uint32_t place) {
  const uint64_t key = atomic_load(&keys[place]);
  return key != 0 && key != REMOVED ? &qps[place] : 0;
}
