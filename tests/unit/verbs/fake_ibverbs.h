/* SPDX-License-Identifier: Apache-2.0 */
/* A library with the name and the symbol versions of libibverbs, and a provider without a device: requests complete as
 * soon as they are polled for. For tests and measurements of libcwverbs. */
#ifndef CW_FAKE_IBVERBS_H
#define CW_FAKE_IBVERBS_H
#include <infiniband/verbs.h>
#include <stdbool.h>

uint32_t fake_label(const struct ibv_qp* qp);  /* of its latest address vector */
void fake_refuse_labels(bool refuse);          /* ibv_modify_qp fails where there is one */
void fake_refuse_posts(bool refuse);           /* ibv_post_send takes the first request of a list only */
void fake_refuse_all_posts(bool refuse);       /* it fails and says nothing of which request */
void fake_do_nothing(const struct ibv_qp* qp); /* what it posts completes at once, for measurements */
struct ibv_cq* fake_cq(struct ibv_context* context);
#endif
