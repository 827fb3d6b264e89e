/* SPDX-License-Identifier: Apache-2.0 */
/* What a post and a poll cost over a provider that does nothing: prints pairs of nanoseconds per call. Run by
 * cw_bench_verbs with and without libcwverbs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/verbs/fake_ibverbs.h"

#define LINES 20
#define ROUNDS 500
#define BATCH 64 /* as many as libcwverbs times one of */

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

int main(void) {
  struct ibv_context* context = ibv_open_device(0);
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
  struct ibv_qp* qp = ibv_create_qp(ibv_alloc_pd(context), &init);
  struct ibv_sge sge = {.length = 65536};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* bad;
  struct ibv_wc wc;
  fake_do_nothing(qp);
  for (int line = -1; line < LINES; line++) { /* the first warms up */
    double posts = 0, polls = 0;
    for (int round = 0; round < ROUNDS; round++) {
      const double start = now_ns();
      for (int i = 0; i < BATCH; i++) {
        if (ibv_post_send(qp, &wr, &bad) != 0) return 1;
      }
      const double middle = now_ns();
      for (int i = 0; i < BATCH; i++) {
        if (ibv_poll_cq(fake_cq(context), 1, &wc) != 1) return 1;
      }
      posts += middle - start;
      polls += now_ns() - middle;
    }
    if (line >= 0) printf("%.3f %.3f\n", posts / (ROUNDS * BATCH), polls / (ROUNDS * BATCH));
  }
  return 0;
}
