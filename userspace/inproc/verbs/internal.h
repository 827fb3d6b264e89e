/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of libcwverbs. Control calls (open, create, modify, destroy) take cwv_lock; the data path (post, poll)
 * takes no lock, allocates nothing and makes no system call. */
#ifndef CWVERBS_INTERNAL_H
#define CWVERBS_INTERNAL_H
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "userspace/inproc/cw_inproc.h"

#define CWV_MAX_CONTEXTS 256 /* powers of two */
#define CWV_MAX_QPS 16384
#define CWV_SHARES 8
#define CWV_OCTAVES 27 /* completion times from 128 ns to 16 s … */
#define CWV_FIRST_OCTAVE 7
#define CWV_PARTS 8 /* … each octave in so many */
#define CWV_BUCKETS (CWV_OCTAVES * CWV_PARTS)

/* Calls of the device's provider on connected queue pairs; NULL: it has none. */
struct cwv_provider {
  int (*set_port)(struct ibv_qp*, uint16_t);
  int (*set_lag)(struct ibv_qp*, uint8_t);
  int (*query_lag)(struct ibv_qp*, uint8_t* wanted, uint8_t* active);
};

/* A device context and what its provider put into it. */
struct cwv_context {
  _Atomic(struct ibv_context*) context; /* key; NULL: free */
  int (*post_send)(struct ibv_qp*, struct ibv_send_wr*, struct ibv_send_wr**);
  int (*poll_cq)(struct ibv_cq*, int, struct ibv_wc*);
  struct ibv_qp* (*create_qp_ex)(struct ibv_context*, struct ibv_qp_init_attr_ex*);
  struct cwv_provider provider;
  int refused_port; /* errno by which the device took set_port back; under cwv_lock, as is … */
  bool no_bond;
};

/* Functions of an extended queue pair as its provider set them. */
struct cwv_ex_ops {
  void (*wr_atomic_cmp_swp)(struct ibv_qp_ex*, uint32_t, uint64_t, uint64_t, uint64_t);
  void (*wr_atomic_fetch_add)(struct ibv_qp_ex*, uint32_t, uint64_t, uint64_t);
  void (*wr_rdma_read)(struct ibv_qp_ex*, uint32_t, uint64_t);
  void (*wr_rdma_write)(struct ibv_qp_ex*, uint32_t, uint64_t);
  void (*wr_rdma_write_imm)(struct ibv_qp_ex*, uint32_t, uint64_t, __be32);
  void (*wr_send)(struct ibv_qp_ex*);
  void (*wr_send_imm)(struct ibv_qp_ex*, __be32);
  void (*wr_send_inv)(struct ibv_qp_ex*, uint32_t);
  void (*wr_set_inline_data)(struct ibv_qp_ex*, void*, size_t);
  void (*wr_set_inline_data_list)(struct ibv_qp_ex*, size_t, const struct ibv_data_buf*);
  void (*wr_set_sge)(struct ibv_qp_ex*, uint32_t, uint64_t, uint32_t);
  void (*wr_set_sge_list)(struct ibv_qp_ex*, size_t, const struct ibv_sge*);
  void (*wr_start)(struct ibv_qp_ex*);
  int (*wr_complete)(struct ibv_qp_ex*);
  void (*wr_abort)(struct ibv_qp_ex*);
};

/* Send requests of one call, before they are counted. */
struct cwv_batch {
  uint64_t messages, bytes, signaled;
};

/* What one thread counted of a queue pair. The last share is for all threads beyond the first ones. */
struct cwv_share {
  _Atomic uint64_t messages, bytes;
  _Atomic uint64_t signaled, completed; /* send requests with a completion: posted, polled */
};

struct cwv_order {
  uint32_t request; /* 0: nobody waits for an answer */
  uint16_t port;    /* 0: as it is */
  uint8_t lag_port; /* 0: as it is */
};

struct cwv_qp {
  _Alignas(64) struct cwv_share share[CWV_SHARES];
  _Atomic uint64_t errors;
  _Atomic uint64_t sample;   /* the request that is timed, counted from 1; 0: none, CWV_CLAIMED: being set */
  _Atomic int64_t sample_ns; /* when it was posted */
  bool all_signaled;
  struct cwv_batch batch; /* of wr_start … wr_complete, which the provider serialises */
  struct cwv_ex_ops ex;
  struct ibv_qp_ex* wrapped; /* NULL: no extended queue pair of ours */

  /* Under cwv_lock. */
  bool known;     /* connected: there is something to announce … */
  bool announced; /* … and it was, over the present socket */
  uint32_t label; /* that we put in, 0: none */
  uint64_t told_messages, told_completed;
  struct cw_inproc_register_qp self;
  struct ibv_qp* handle;        /* of a connected one: may be used while it is moving, or under cwv_lock */
  bool own_label, own_failover; /* not ours to move */
  bool can_told;                /* what it can, over the present socket */
  bool in_line, moving;         /* for a move; a call of its provider is under way */
  bool port_moved;              /* while it was connected */
  bool lag_asked;
  uint8_t lag_active, lag_wanted;
  struct cwv_order order; /* all 0: none */
  bool answer_due;
  struct cw_inproc_qp_moved answer; /* type and address are filled in when it is told */

  _Atomic uint64_t samples, max_ns;
  _Atomic uint32_t bucket[CWV_BUCKETS];
};

#define CWV_CLAIMED UINT64_MAX

/* real.c: libibverbs itself. NULL: it is not in this process. */
void* cwv_real(const char* name);

/* table.c. find: any thread, no lock. add, remove: under cwv_lock. */
struct cwv_context* cwv_find_context(const struct ibv_context* context);
struct cwv_context* cwv_add_context(struct ibv_context* context, const struct cwv_provider* provider);
void cwv_remove_context(struct cwv_context* context);
struct cwv_qp* cwv_find_qp(const struct cwv_context* context, uint32_t qpn);
struct cwv_qp* cwv_find_qp_of_address(const uint8_t laddr[16], uint32_t qpn); /* a connected one; under cwv_lock */
struct cwv_qp* cwv_add_qp(const struct cwv_context* context, uint32_t qpn);   /* cleared; NULL: the table is full */
void cwv_remove_qp(struct cwv_qp* qp);
uint32_t cwv_places(void);
struct cwv_qp* cwv_qp_at(uint32_t place); /* below cwv_places(); NULL: free */

/* count.c: the data path. */
int cwv_post_send(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad);
int cwv_poll_cq(struct ibv_cq* cq, int n, struct ibv_wc* wc);
void cwv_commit(struct cwv_qp* qp, const struct cwv_batch* batch);
void cwv_take_back(struct cwv_qp* qp, const struct cwv_batch* batch);
void cwv_forget_requests(struct cwv_qp* qp); /* it was reset */
struct cwv_share cwv_sum(const struct cwv_qp* qp);
uint64_t cwv_median_ns(const struct cwv_qp* qp);

/* count_ex.c */
void cwv_wrap_ex(struct cwv_qp* qp, struct ibv_qp_ex* ex);
void cwv_unwrap_ex(struct cwv_qp* qp);

/* agent.c: the conversation with the agent. All under cwv_lock, which is held for a few milliseconds at most. */
extern pthread_mutex_t cwv_lock;
int64_t cwv_now_ns(void);
bool cwv_ask(const struct cw_inproc_register_qp* qp, struct cw_inproc_placement* answer);
void cwv_announce(struct cwv_qp* qp);
void cwv_retire(struct cwv_qp* qp); /* sums, then the end */
void cwv_tell_moved(struct cwv_qp* qp);
void cwv_start_reporter(void);

/* provider.c: of the library that `function` is in. Takes the loader's lock: never under cwv_lock. */
struct cwv_provider cwv_provider_of(const void* function);

/* move.c: moves of connected queue pairs. Under cwv_lock, but for make_moves, which takes it. */
uint32_t cwv_can(const struct cwv_qp* qp);     /* enum cw_inproc_can */
uint16_t cwv_refused(const struct cwv_qp* qp); /* errno, 0 */
void cwv_order_move(const struct cw_inproc_move* move);
void cwv_keep_port(struct cwv_qp* qp);
void cwv_ask_lag(struct cwv_qp* qp);
void cwv_make_moves(void);
void cwv_await_move(struct cwv_qp* qp); /* until no call on it is under way; gives cwv_lock away meanwhile */
void cwv_forget_moves(void);            /* in a child of fork */

/* port.c: Linux's way from labels to UDP source ports, include/rdma/ib_verbs.h. */
uint16_t cwv_port_of_label(uint32_t label);
uint32_t cwv_label_of_port(uint16_t port); /* from 0xc000 on; never 0 */
uint32_t cwv_native_label(uint32_t lqpn, uint32_t rqpn);

#endif
