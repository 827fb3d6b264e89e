/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/verbs/fake_ibverbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct fake_qp {
  struct ibv_qp_ex ex; /* first: as providers have it */
  uint32_t label;
  bool all_signaled;
  uint64_t signaled; /* of the batch that is being built */
};

/* Completions that wait to be polled, by queue pair number; one queue for each context. */
struct fake_context {
  struct verbs_context verbs;
  struct ibv_cq cq;
  pthread_mutex_t mutex;
  uint32_t due[1 << 16];
  uint32_t head, tail;
};

static _Atomic uint32_t next_qpn = 0x100;
static atomic_bool refuse_labels, refuse_posts, refuse_all;
static uint32_t idle_qpn; /* each post and each poll of it succeed and do nothing; 0: of none */

static struct fake_context* of(struct ibv_context* context) { return (struct fake_context*)verbs_get_ctx(context); }

static void complete(struct ibv_qp* qp, uint64_t n) {
  struct fake_context* at = of(qp->context);
  pthread_mutex_lock(&at->mutex);
  for (; n > 0 && at->head - at->tail < 1 << 16; n--) at->due[at->head++ % (1 << 16)] = qp->qp_num;
  pthread_mutex_unlock(&at->mutex);
}

static int post_send(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad) {
  const bool all = ((struct fake_qp*)qp)->all_signaled;
  uint64_t n = 0;
  if (qp->qp_num == idle_qpn) return 0;
  if (refuse_all) return EIO; /* as providers do of a queue pair or a device that is broken: bad stays as it is */
  for (; wr; wr = wr->next) {
    n += all || (wr->send_flags & IBV_SEND_SIGNALED);
    if (refuse_posts && wr->next) {
      complete(qp, n);
      *bad = wr->next;
      return ENOMEM;
    }
  }
  complete(qp, n);
  return 0;
}

static int poll_cq(struct ibv_cq* cq, int n, struct ibv_wc* wc) {
  struct fake_context* at = of(cq->context);
  int got = 0;
  if (idle_qpn != 0) {
    wc->status = IBV_WC_SUCCESS;
    wc->opcode = IBV_WC_RDMA_WRITE;
    wc->qp_num = idle_qpn;
    return 1;
  }
  pthread_mutex_lock(&at->mutex);
  for (; got < n && at->tail != at->head; got++) {
    memset(&wc[got], 0, sizeof(wc[got]));
    wc[got].qp_num = at->due[at->tail++ % (1 << 16)];
    wc[got].opcode = IBV_WC_RDMA_WRITE;
  }
  pthread_mutex_unlock(&at->mutex);
  return got;
}

static void wr_start(struct ibv_qp_ex* ex) { ((struct fake_qp*)ex)->signaled = 0; }
static void wr_rdma_write(struct ibv_qp_ex* ex, uint32_t rkey, uint64_t at) {
  (void)rkey, (void)at;
  ((struct fake_qp*)ex)->signaled += (ex->wr_flags & IBV_SEND_SIGNALED) != 0;
}
static void wr_set_sge(struct ibv_qp_ex* ex, uint32_t lkey, uint64_t at, uint32_t length) {
  (void)ex, (void)lkey, (void)at, (void)length;
}
static int wr_complete(struct ibv_qp_ex* ex) {
  complete(&ex->qp_base, ((struct fake_qp*)ex)->signaled);
  return 0;
}

static struct fake_qp* new_qp(struct ibv_context* context, enum ibv_qp_type type, bool all_signaled) {
  struct fake_qp* qp = calloc(1, sizeof(*qp));
  qp->ex.qp_base.context = context;
  qp->ex.qp_base.qp_type = type;
  qp->ex.qp_base.qp_num = next_qpn++;
  qp->all_signaled = all_signaled;
  return qp;
}

static struct ibv_qp* create_qp_ex(struct ibv_context* context, struct ibv_qp_init_attr_ex* attr) {
  struct fake_qp* qp = new_qp(context, attr->qp_type, attr->sq_sig_all);
  qp->ex.wr_start = wr_start;
  qp->ex.wr_complete = wr_complete;
  qp->ex.wr_rdma_write = wr_rdma_write;
  qp->ex.wr_set_sge = wr_set_sge;
  return &qp->ex.qp_base;
}

typedef int (*post_fn)(struct ibv_qp*, struct ibv_send_wr*, struct ibv_send_wr**);

/* As libibverbs does: the provider is loaded by its file, for itself. */
static post_fn provider_post_send(void) {
  const char* path = getenv("FAKE_PROVIDER");
  void* provider = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : 0;
  post_fn (*wrap)(post_fn) = provider ? (post_fn(*)(post_fn))dlsym(provider, "fake_mlx5_post_send") : 0;
  if (path && !wrap) abort();
  return wrap ? wrap(post_send) : post_send;
}

struct ibv_context* ibv_open_device(struct ibv_device* device) {
  struct fake_context* at = calloc(1, sizeof(*at));
  at->verbs.sz = sizeof(at->verbs);
  at->verbs.create_qp_ex = create_qp_ex;
  at->verbs.context.device = device;
  at->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  at->verbs.context.ops.post_send = provider_post_send();
  at->verbs.context.ops.poll_cq = poll_cq;
  at->cq.context = &at->verbs.context;
  pthread_mutex_init(&at->mutex, 0);
  return &at->verbs.context;
}

int ibv_close_device(struct ibv_context* context) {
  if (context->ops.poll_cq != poll_cq) abort(); /* we were not given back what is ours */
  free(of(context));
  return 0;
}

struct ibv_pd* ibv_alloc_pd(struct ibv_context* context) {
  struct ibv_pd* pd = calloc(1, sizeof(*pd));
  pd->context = context;
  return pd;
}

struct ibv_qp* ibv_create_qp(struct ibv_pd* pd, struct ibv_qp_init_attr* attr) {
  return &new_qp(pd->context, attr->qp_type, attr->sq_sig_all)->ex.qp_base;
}

int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask) {
  if ((mask & IBV_QP_AV) && refuse_labels && attr->ah_attr.grh.flow_label != 0) return EINVAL;
  if (mask & IBV_QP_STATE) qp->state = attr->qp_state;
  if (mask & IBV_QP_AV) ((struct fake_qp*)qp)->label = attr->ah_attr.grh.flow_label;
  return 0;
}

int ibv_destroy_qp(struct ibv_qp* qp) {
  free(qp);
  return 0;
}

int ibv_query_gid(struct ibv_context* context, uint8_t port, int index, union ibv_gid* gid) {
  static const uint8_t address[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 10};
  (void)context, (void)port, (void)index;
  memcpy(gid->raw, address, 16);
  return 0;
}

uint32_t fake_label(const struct ibv_qp* qp) { return ((const struct fake_qp*)qp)->label; }
void fake_refuse_labels(bool refuse) { refuse_labels = refuse; }
void fake_refuse_posts(bool refuse) { refuse_posts = refuse; }
void fake_refuse_all_posts(bool refuse) { refuse_all = refuse; }
void fake_do_nothing(const struct ibv_qp* qp) { idle_qpn = qp->qp_num; }
struct ibv_cq* fake_cq(struct ibv_context* context) {
  return &of(context)->cq;
}
