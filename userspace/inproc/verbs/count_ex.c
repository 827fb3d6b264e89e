/* SPDX-License-Identifier: Apache-2.0 */
/* The same for requests that are built with ibv_wr_*: each queue pair has functions of its own. Between wr_start and
 * wr_complete the provider lets one thread in, so the batch needs no care. */
#include <errno.h>

#include "userspace/inproc/verbs/internal.h"

static struct cwv_qp* of(const struct ibv_qp_ex* ex) {
  const struct cwv_context* context = cwv_find_context(ex->qp_base.context);
  return context ? cwv_find_qp(context, ex->qp_base.qp_num) : 0;
}

static struct cwv_qp* with_request(const struct ibv_qp_ex* ex) {
  struct cwv_qp* qp = of(ex);
  if (qp) {
    qp->batch.messages++;
    qp->batch.signaled += qp->all_signaled || (ex->wr_flags & IBV_SEND_SIGNALED);
  }
  return qp;
}

/* While a function of ours stands in a queue pair, the queue pair is in the table. */
#define REQUEST(name, parameters, arguments)    \
  static void on_##name parameters {            \
    const struct cwv_qp* qp = with_request(ex); \
    if (qp) qp->ex.wr_##name arguments;         \
  }
REQUEST(atomic_cmp_swp, (struct ibv_qp_ex * ex, uint32_t rkey, uint64_t at, uint64_t compare, uint64_t swap),
        (ex, rkey, at, compare, swap))
REQUEST(atomic_fetch_add, (struct ibv_qp_ex * ex, uint32_t rkey, uint64_t at, uint64_t add), (ex, rkey, at, add))
REQUEST(rdma_read, (struct ibv_qp_ex * ex, uint32_t rkey, uint64_t at), (ex, rkey, at))
REQUEST(rdma_write, (struct ibv_qp_ex * ex, uint32_t rkey, uint64_t at), (ex, rkey, at))
REQUEST(rdma_write_imm, (struct ibv_qp_ex * ex, uint32_t rkey, uint64_t at, __be32 imm), (ex, rkey, at, imm))
REQUEST(send, (struct ibv_qp_ex * ex), (ex))
REQUEST(send_imm, (struct ibv_qp_ex * ex, __be32 imm), (ex, imm))
REQUEST(send_inv, (struct ibv_qp_ex * ex, uint32_t rkey), (ex, rkey))

static void on_set_inline_data(struct ibv_qp_ex* ex, void* data, size_t length) {
  struct cwv_qp* qp = of(ex);
  if (!qp) return;
  qp->batch.bytes += length;
  qp->ex.wr_set_inline_data(ex, data, length);
}

static void on_set_inline_data_list(struct ibv_qp_ex* ex, size_t n, const struct ibv_data_buf* list) {
  struct cwv_qp* qp = of(ex);
  if (!qp) return;
  for (size_t i = 0; i < n; i++) qp->batch.bytes += list[i].length;
  qp->ex.wr_set_inline_data_list(ex, n, list);
}

static void on_set_sge(struct ibv_qp_ex* ex, uint32_t lkey, uint64_t at, uint32_t length) {
  struct cwv_qp* qp = of(ex);
  if (!qp) return;
  qp->batch.bytes += length;
  qp->ex.wr_set_sge(ex, lkey, at, length);
}

static void on_set_sge_list(struct ibv_qp_ex* ex, size_t n, const struct ibv_sge* list) {
  struct cwv_qp* qp = of(ex);
  if (!qp) return;
  for (size_t i = 0; i < n; i++) qp->batch.bytes += list[i].length;
  qp->ex.wr_set_sge_list(ex, n, list);
}

static void on_start(struct ibv_qp_ex* ex) {
  struct cwv_qp* qp = of(ex);
  if (!qp) return;
  qp->ex.wr_start(ex);
  qp->batch = (struct cwv_batch){0, 0, 0};
}

static int on_complete(struct ibv_qp_ex* ex) {
  struct cwv_qp* qp = of(ex);
  struct cwv_batch batch;
  int error;
  if (!qp) return EINVAL;
  batch = qp->batch; /* the next thread may be in as soon as the provider lets go */
  cwv_commit(qp, &batch);
  error = qp->ex.wr_complete(ex);
  if (error) cwv_take_back(qp, &batch);
  return error;
}

static void on_abort(struct ibv_qp_ex* ex) {
  struct cwv_qp* qp = of(ex);
  if (qp) qp->ex.wr_abort(ex);
}

/* clang-format off */
#define EACH(X)                                                                                  \
  X(atomic_cmp_swp) X(atomic_fetch_add) X(rdma_read) X(rdma_write) X(rdma_write_imm) X(send)     \
  X(send_imm) X(send_inv) X(set_inline_data) X(set_inline_data_list) X(set_sge) X(set_sge_list)  \
  X(start) X(complete) X(abort)
#define KEEP(name) qp->ex.wr_##name = ex->wr_##name;
#define PUT(name) if (ex->wr_##name) ex->wr_##name = on_##name;
#define RESTORE(name) if (qp->ex.wr_##name) ex->wr_##name = qp->ex.wr_##name;
/* clang-format on */

void cwv_wrap_ex(struct cwv_qp* qp, struct ibv_qp_ex* ex) {
  EACH(KEEP)
  qp->wrapped = ex;
  EACH(PUT)
}

void cwv_unwrap_ex(struct cwv_qp* qp) {
  struct ibv_qp_ex* ex = qp->wrapped;
  if (!ex) return;
  EACH(RESTORE)
  qp->wrapped = 0;
}
