/* SPDX-License-Identifier: Apache-2.0 */
/* Messages, bytes and completion times of each queue pair, counted where requests are posted and completions polled. */
#include <errno.h>

#include "userspace/inproc/verbs/internal.h"

#define SAMPLE_EVERY 64u /* reading the clock twice costs more than all the rest */

#define ADD(what, n) atomic_fetch_add_explicit(&(what), (n), memory_order_relaxed)
#define LOAD(what) atomic_load_explicit(&(what), memory_order_relaxed)

/* Numbers are never given back: a process that makes many threads counts with the dearer instructions in the end. */
static _Atomic uint32_t threads;
static _Thread_local uint32_t my_number; /* from 1; 0: none yet */

static uint32_t my_share(void) {
  if (my_number == 0) my_number = ADD(threads, 1) + 1;
  return my_number < CWV_SHARES ? my_number - 1 : CWV_SHARES - 1;
}

/* Where only one thread writes, no locked instruction is needed. */
static void add(_Atomic uint64_t* what, uint64_t n, uint32_t share) {
  if (share == CWV_SHARES - 1) {
    ADD(*what, n);
  } else {
    atomic_store_explicit(what, LOAD(*what) + n, memory_order_relaxed);
  }
}

struct cwv_share cwv_sum(const struct cwv_qp* qp) {
  struct cwv_share sum = {0, 0, 0, 0};
  for (uint32_t i = 0; i < CWV_SHARES; i++) {
    sum.messages += LOAD(qp->share[i].messages);
    sum.bytes += LOAD(qp->share[i].bytes);
    sum.signaled += LOAD(qp->share[i].signaled);
    sum.completed += LOAD(qp->share[i].completed);
  }
  return sum;
}

static void start_sample(struct cwv_qp* qp, uint64_t number) {
  uint64_t none = 0;
  if (!atomic_compare_exchange_strong(&qp->sample, &none, CWV_CLAIMED)) return;
  atomic_store_explicit(&qp->sample_ns, cwv_now_ns(), memory_order_relaxed);
  atomic_store_explicit(&qp->sample, number, memory_order_release);
}

void cwv_commit(struct cwv_qp* qp, const struct cwv_batch* batch) {
  const uint32_t mine = my_share();
  struct cwv_share* share = &qp->share[mine];
  uint64_t before;
  add(&share->messages, batch->messages, mine);
  add(&share->bytes, batch->bytes, mine);
  if (batch->signaled == 0) return;
  before = LOAD(share->signaled);
  add(&share->signaled, batch->signaled, mine);
  /* The last one of the batch, whenever a multiple was passed; numbers count from 1. */
  if ((before + SAMPLE_EVERY - 1) / SAMPLE_EVERY != (before + batch->signaled + SAMPLE_EVERY - 1) / SAMPLE_EVERY &&
      LOAD(qp->sample) == 0)
    start_sample(qp, cwv_sum(qp).signaled);
}

void cwv_take_back(struct cwv_qp* qp, const struct cwv_batch* batch) {
  const uint32_t mine = my_share();
  struct cwv_share* share = &qp->share[mine];
  add(&share->messages, 0 - batch->messages, mine);
  add(&share->bytes, 0 - batch->bytes, mine);
  if (batch->signaled == 0) return;
  add(&share->signaled, 0 - batch->signaled, mine);
  atomic_store(&qp->sample, 0);
}

void cwv_forget_requests(struct cwv_qp* qp) {
  for (uint32_t i = 0; i < CWV_SHARES; i++) {
    atomic_store(&qp->share[i].signaled, 0);
    atomic_store(&qp->share[i].completed, 0);
  }
  atomic_store(&qp->sample, 0);
}

static struct cwv_batch sum(const struct cwv_qp* qp, const struct ibv_send_wr* wr) {
  struct cwv_batch batch = {0, 0, 0};
  for (; wr; wr = wr->next) {
    batch.messages++;
    for (int i = 0; i < wr->num_sge; i++) batch.bytes += wr->sg_list[i].length;
    batch.signaled += qp->all_signaled || (wr->send_flags & IBV_SEND_SIGNALED);
  }
  return batch;
}

/* Of an attempt that failed, what was not posted begins here. Providers leave `bad` unset for errors that have nothing
 * to do with one request: then none of the list was posted. Only what is in the list may be looked at. */
static const struct ibv_send_wr* first_left(const struct ibv_send_wr* wr, const struct ibv_send_wr* bad) {
  for (const struct ibv_send_wr* at = wr; at; at = at->next) {
    if (at == bad) return at;
  }
  return wr;
}

int cwv_post_send(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad) {
  const struct cwv_context* context = cwv_find_context(qp->context);
  struct ibv_send_wr* left = 0; /* ours, so that "unset" is a value that is known */
  struct cwv_qp* known;
  struct cwv_batch batch;
  int error;
  if (!context) return ENOSYS; /* closed already */
  known = cwv_find_qp(context, qp->qp_num);
  if (!known) return context->post_send(qp, wr, bad);
  batch = sum(known, wr);
  cwv_commit(known, &batch);
  error = context->post_send(qp, wr, &left);
  if (left && bad) *bad = left;
  if (error) {
    batch = sum(known, first_left(wr, left));
    cwv_take_back(known, &batch);
  }
  return error;
}

static uint32_t bucket_of(uint64_t ns) {
  uint32_t octave;
  if (ns < (UINT64_C(1) << CWV_FIRST_OCTAVE)) return 0;
  octave = 63u - (uint32_t)__builtin_clzll(ns) - CWV_FIRST_OCTAVE;
  if (octave >= CWV_OCTAVES) return CWV_BUCKETS - 1;
  return octave * CWV_PARTS + (uint32_t)((ns >> (octave + CWV_FIRST_OCTAVE - 3)) & (CWV_PARTS - 1));
}

uint64_t cwv_median_ns(const struct cwv_qp* qp) {
  const uint64_t samples = atomic_load(&qp->samples);
  uint64_t seen = 0;
  for (uint32_t i = 0; i < CWV_BUCKETS && samples != 0; i++) {
    seen += atomic_load_explicit(&qp->bucket[i], memory_order_relaxed);
    if (2 * seen >= samples) {
      const uint32_t shift = i / CWV_PARTS + CWV_FIRST_OCTAVE - 3;
      return ((uint64_t)(CWV_PARTS + i % CWV_PARTS) << shift) + (UINT64_C(1) << shift) / 2;
    }
  }
  return 0;
}

static void end_sample(struct cwv_qp* qp, uint64_t number) {
  const int64_t took = cwv_now_ns() - atomic_load_explicit(&qp->sample_ns, memory_order_relaxed);
  const uint64_t ns = took > 0 ? (uint64_t)took : 0;
  uint64_t most;
  if (!atomic_compare_exchange_strong(&qp->sample, &number, 0)) return; /* another thread polled it */
  ADD(qp->bucket[bucket_of(ns)], 1);
  ADD(qp->samples, 1);
  most = atomic_load_explicit(&qp->max_ns, memory_order_relaxed);
  while (ns > most && !atomic_compare_exchange_weak(&qp->max_ns, &most, ns)) {
  }
}

/* Completions in a row of one queue pair: `sent` of send requests, `failed` of either kind. */
static void settle(struct cwv_qp* qp, uint64_t sent, uint64_t failed) {
  const uint32_t mine = my_share();
  uint64_t sample;
  if (failed) {
    ADD(qp->errors, failed);
    atomic_store(&qp->sample, 0); /* which of the requests it was cannot be told: the rest are not timed */
  }
  if (!sent) return;
  add(&qp->share[mine].completed, sent, mine);
  sample = atomic_load_explicit(&qp->sample, memory_order_acquire);
  if (sample != 0 && sample != CWV_CLAIMED && cwv_sum(qp).completed >= sample) end_sample(qp, sample);
}

static void count_completions(const struct cwv_context* context, const struct ibv_wc* wc, int n) {
  for (int i = 0; i < n;) {
    const uint32_t qpn = wc[i].qp_num;
    struct cwv_qp* qp = cwv_find_qp(context, qpn);
    uint64_t sent = 0, failed = 0;
    for (; i < n && wc[i].qp_num == qpn; i++) {
      if (wc[i].status != IBV_WC_SUCCESS) {
        failed++;
      } else if (!(wc[i].opcode & IBV_WC_RECV)) {
        sent++;
      }
    }
    if (qp) settle(qp, sent, failed);
  }
}

int cwv_poll_cq(struct ibv_cq* cq, int n, struct ibv_wc* wc) {
  const struct cwv_context* context = cwv_find_context(cq->context);
  int got;
  if (!context) return -1; /* closed already */
  got = context->poll_cq(cq, n, wc);
  if (got > 0) count_completions(context, wc, got);
  return got;
}
