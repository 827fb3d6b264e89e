/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libibverbs that we stand in front of. Each calls the one behind it; what we do besides never fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "userspace/inproc/verbs/internal.h"

/* Looked up at the first call. Two threads find the same. */
#define REAL(name) real_of(&real_##name, #name)
#define DECLARE(name) static void* _Atomic real_##name
DECLARE(ibv_open_device);
DECLARE(ibv_close_device);
DECLARE(ibv_alloc_pd);
DECLARE(ibv_create_qp);
DECLARE(ibv_modify_qp);
DECLARE(ibv_destroy_qp);
DECLARE(ibv_query_gid);

static void* real_of(void* _Atomic* slot, const char* name) {
  void* found = atomic_load_explicit(slot, memory_order_acquire);
  if (!found) {
    found = cwv_real(name);
    atomic_store_explicit(slot, found, memory_order_release);
  }
  if (!found) errno = ENOSYS;
  return found;
}

/* Under cwv_lock, where a context is seen first. */
static struct cwv_qp* remember(struct ibv_qp* qp) {
  const struct cwv_context* context = cwv_find_context(qp->context);
  struct cwv_qp* known = context ? cwv_find_qp(context, qp->qp_num) : 0;
  return known || !context ? known : cwv_add_qp(context, qp->qp_num);
}

/* Of a queue pair that was just made. One of its number that is known still went another way than ibv_destroy_qp. */
static struct cwv_qp* remember_new(struct ibv_qp* qp, bool all_signaled) {
  const struct cwv_context* context = cwv_find_context(qp->context);
  struct cwv_qp* known = context ? cwv_find_qp(context, qp->qp_num) : 0;
  if (known) {
    cwv_retire(known);
    cwv_remove_qp(known);
  }
  known = remember(qp);
  if (known) known->all_signaled = all_signaled;
  return known;
}

static struct ibv_qp* create_qp_ex(struct ibv_context* context, struct ibv_qp_init_attr_ex* attr) {
  const struct cwv_context* at = cwv_find_context(context);
  struct ibv_qp* qp;
  struct cwv_qp* known;
  if (!at) {
    errno = ENOSYS;
    return 0;
  }
  qp = at->create_qp_ex(context, attr);
  if (!qp) return 0;
  pthread_mutex_lock(&cwv_lock);
  known = remember_new(qp, attr->sq_sig_all);
  if (known && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) cwv_wrap_ex(known, (struct ibv_qp_ex*)qp);
  pthread_mutex_unlock(&cwv_lock);
  return qp;
}

/* Under cwv_lock. */
static void hook(struct ibv_context* context, const struct cwv_provider* provider) {
  struct verbs_context* extended;
  struct cwv_context* at;
  if (cwv_find_context(context)) return;
  at = cwv_add_context(context, provider);
  if (!at) return;
  context->ops.post_send = cwv_post_send;
  context->ops.poll_cq = cwv_poll_cq;
  extended = verbs_get_ctx_op(context, create_qp_ex);
  if (!extended) return;
  at->create_qp_ex = extended->create_qp_ex;
  extended->create_qp_ex = create_qp_ex;
}

/* Also for contexts that were opened by other ways than ibv_open_device. */
static void hook_new(struct ibv_context* context) {
  const int before = errno;
  struct cwv_provider provider;
  if (!context || cwv_find_context(context)) return;
  provider = cwv_provider_of((const void*)context->ops.post_send);
  pthread_mutex_lock(&cwv_lock);
  hook(context, &provider);
  pthread_mutex_unlock(&cwv_lock);
  errno = before;
}

struct ibv_context* ibv_open_device(struct ibv_device* device) {
  struct ibv_context* (*real)(struct ibv_device*) = REAL(ibv_open_device);
  struct ibv_context* context = real ? real(device) : 0;
  if (context) hook_new(context);
  return context;
}

struct ibv_pd* ibv_alloc_pd(struct ibv_context* context) {
  struct ibv_pd* (*real)(struct ibv_context*) = REAL(ibv_alloc_pd);
  if (real) hook_new(context);
  return real ? real(context) : 0;
}

/* Those that were not destroyed before their context is closed: nobody may touch them any more. Under cwv_lock. */
static void forget_queue_pairs_of(const struct ibv_context* context) {
  for (uint32_t i = 0; i < cwv_places(); i++) {
    struct cwv_qp* qp = cwv_qp_at(i);
    if (!qp || !qp->handle || qp->handle->context != context) continue;
    cwv_await_move(qp);
    cwv_retire(qp);
  }
}

/* The provider frees the context: it gets back what was its own first. */
int ibv_close_device(struct ibv_context* context) {
  int (*real)(struct ibv_context*) = REAL(ibv_close_device);
  struct cwv_context* at;
  if (!real) return -1;
  pthread_mutex_lock(&cwv_lock);
  at = cwv_find_context(context);
  if (at) forget_queue_pairs_of(context);
  if (at) {
    struct verbs_context* extended = at->create_qp_ex ? verbs_get_ctx(context) : 0;
    context->ops.post_send = at->post_send;
    context->ops.poll_cq = at->poll_cq;
    if (extended) extended->create_qp_ex = at->create_qp_ex;
    cwv_remove_context(at);
  }
  pthread_mutex_unlock(&cwv_lock);
  return real(context);
}

struct ibv_qp* ibv_create_qp(struct ibv_pd* pd, struct ibv_qp_init_attr* attr) {
  struct ibv_qp* (*real)(struct ibv_pd*, struct ibv_qp_init_attr*) = REAL(ibv_create_qp);
  struct ibv_qp* qp;
  if (!real) return 0;
  hook_new(pd->context);
  qp = real(pd, attr);
  if (!qp) return 0;
  pthread_mutex_lock(&cwv_lock);
  (void)remember_new(qp, attr->sq_sig_all);
  pthread_mutex_unlock(&cwv_lock);
  return qp;
}

int ibv_destroy_qp(struct ibv_qp* qp) {
  int (*real)(struct ibv_qp*) = REAL(ibv_destroy_qp);
  const struct cwv_context* context;
  struct cwv_qp* known;
  const int before = errno;
  if (!real) return ENOSYS;
  pthread_mutex_lock(&cwv_lock);
  context = cwv_find_context(qp->context);
  known = context ? cwv_find_qp(context, qp->qp_num) : 0;
  if (known) {
    cwv_await_move(known);
    cwv_retire(known);
    cwv_unwrap_ex(known);
    cwv_remove_qp(known);
  }
  pthread_mutex_unlock(&cwv_lock);
  errno = before;
  return real(qp);
}

/* The job's name, for people. */
static void put_label(char* out) {
  const char* text = secure_getenv("CWVERBS_LABEL");
  const char* job = secure_getenv("SLURM_JOB_ID");
  if (text && *text) {
    snprintf(out, CW_LABEL_LEN, "%s", text);
  } else if (job && *job) {
    snprintf(out, CW_LABEL_LEN, "slurm %s", job);
  }
}

/* NCCL's own port failover (NCCL 2.30, src/transport/net_ib/p2p_resiliency.cc: a number, 0 by default), which RCCL
 * has, too. What NCCL reads from its configuration files is in the environment by the time it connects. */
static bool own_failover(void) {
  const char* text = secure_getenv("NCCL_IB_RESILIENCY_PORT_FAILOVER");
  return text && strtoll(text, 0, 0) != 0;
}

static bool describe(struct ibv_qp* qp, const struct ibv_qp_attr* attr, int mask, struct cw_inproc_register_qp* self) {
  int (*query_gid)(struct ibv_context*, uint8_t, int, union ibv_gid*) = REAL(ibv_query_gid);
  const struct ibv_global_route* grh = &attr->ah_attr.grh;
  union ibv_gid gid;
  if (!query_gid || query_gid(qp->context, attr->ah_attr.port_num, grh->sgid_index, &gid) != 0) return false;
  memset(self, 0, sizeof(*self));
  self->magic = CW_INPROC_MAGIC;
  self->version = CW_INPROC_VERSION;
  self->type = CW_INPROC_REGISTER_QP;
  self->lqpn = qp->qp_num;
  self->rqpn = attr->dest_qp_num;
  memcpy(self->laddr, gid.raw, sizeof(self->laddr));
  memcpy(self->raddr, grh->dgid.raw, sizeof(self->raddr));
  self->pid = (uint32_t)getpid();
  if (mask & IBV_QP_PATH_MTU) self->path_mtu = (uint16_t)(128u << attr->path_mtu);
  snprintf(self->comm, sizeof(self->comm), "%.15s", program_invocation_short_name);
  put_label(self->label);
  return true;
}

/* A connection over RoCE gets its addresses: the moment at which a port can be chosen. */
static bool connects(const struct ibv_qp* qp, const struct ibv_qp_attr* attr, int mask) {
  const int needed = IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN;
  return (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC) && (mask & needed) == needed &&
         attr->qp_state == IBV_QPS_RTR && attr->ah_attr.is_global;
}

/* The label that the application chose, 0 for none. UCX gives every queue pair over RoCE the same 32 ones, which is no
 * label (20 bits) and no path of its choice: as they are, all its queue pairs have one UDP port and share a path
 * (uct_ib_iface_fill_ah_attr_from_gid_lid, UCX 1.13 as in 2026). Its further paths (UCX_IB_NUM_PATHS) have other
 * values. */
static uint32_t chosen_label(const struct ibv_qp_attr* attr) {
  const uint32_t given = attr->ah_attr.grh.flow_label;
  return given == UINT32_MAX ? 0 : given;
}

/* Under cwv_lock. Returns the label to put in, 0 for none. */
static uint32_t place(struct ibv_qp* qp, const struct ibv_qp_attr* attr, int mask, struct cwv_qp* known) {
  const uint32_t given = attr->ah_attr.grh.flow_label;
  const bool own = chosen_label(attr) != 0;
  struct cw_inproc_placement answer;
  known->known = describe(qp, attr, mask, &known->self);
  known->announced = false;
  known->label = 0;
  if (!known->known) return 0;
  known->self.udp_sport = cwv_port_of_label(given ? given : cwv_native_label(qp->qp_num, attr->dest_qp_num));
  known->handle = qp;
  known->own_label = own;
  known->own_failover = own_failover();
  known->can_told = false;
  cwv_start_reporter();
  if (own || !cwv_ask(&known->self, &answer) || answer.verdict != CW_INPROC_PLACED) return 0;
  return answer.flow_label;
}

/* The application's structure may be one of an older header, without the last field, and is not ours to write to. */
static void copy_attr(struct ibv_qp_attr* to, const struct ibv_qp_attr* from, int mask) {
  memset(to, 0, sizeof(*to));
  memcpy(to, from, mask & IBV_QP_RATE_LIMIT ? sizeof(*to) : offsetof(struct ibv_qp_attr, rate_limit));
}

static int connect_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask,
                      int (*real)(struct ibv_qp*, struct ibv_qp_attr*, int)) {
  struct ibv_qp_attr with_label;
  struct cwv_qp* known;
  uint32_t label = 0;
  int error = -1;
  const int before = errno;
  hook_new(qp->context);
  pthread_mutex_lock(&cwv_lock);
  known = remember(qp);
  if (known) label = place(qp, attr, mask, known);
  pthread_mutex_unlock(&cwv_lock);
  errno = before;
  if (label) {
    copy_attr(&with_label, attr, mask);
    with_label.ah_attr.grh.flow_label = label;
    error = real(qp, &with_label, mask);
    if (error) label = 0; /* then as if we were not here */
  }
  if (error) error = real(qp, attr, mask);
  if (!known) return error;
  pthread_mutex_lock(&cwv_lock);
  known->label = label;
  if (label) known->self.udp_sport = cwv_port_of_label(label);
  if (error) {
    known->announced = true; /* by the question: take it back */
    cwv_retire(known);
  } else {
    cwv_announce(known);
  }
  pthread_mutex_unlock(&cwv_lock);
  return error;
}

/* A reset queue pair is connected to nobody. */
static void on_reset(struct ibv_qp* qp) {
  const struct cwv_context* context;
  struct cwv_qp* known;
  pthread_mutex_lock(&cwv_lock);
  context = cwv_find_context(qp->context);
  known = context ? cwv_find_qp(context, qp->qp_num) : 0;
  if (known) {
    cwv_retire(known);
    cwv_forget_requests(known);
  }
  pthread_mutex_unlock(&cwv_lock);
}

/* After a change of its attributes. */
static void on_modified(struct ibv_qp* qp) {
  const struct cwv_context* context = cwv_find_context(qp->context);
  struct cwv_qp* known = context ? cwv_find_qp(context, qp->qp_num) : 0;
  if (!known) return;
  pthread_mutex_lock(&cwv_lock);
  cwv_keep_port(known);
  pthread_mutex_unlock(&cwv_lock);
}

/* The label that was put in when the queue pair connected, where the application gives its addresses once more. */
static uint32_t label_of(const struct ibv_qp* qp) {
  const struct cwv_context* context = cwv_find_context(qp->context);
  const struct cwv_qp* known = context ? cwv_find_qp(context, qp->qp_num) : 0;
  return known ? known->label : 0;
}

int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask) {
  int (*real)(struct ibv_qp*, struct ibv_qp_attr*, int) = REAL(ibv_modify_qp);
  struct ibv_qp_attr with_label;
  uint32_t label;
  int error;
  if (!real) return ENOSYS;
  if (connects(qp, attr, mask)) return connect_qp(qp, attr, mask, real);
  label = (mask & IBV_QP_AV) && attr->ah_attr.is_global && !chosen_label(attr) ? label_of(qp) : 0;
  if (label) {
    copy_attr(&with_label, attr, mask);
    with_label.ah_attr.grh.flow_label = label;
    error = real(qp, &with_label, mask);
  } else {
    error = real(qp, attr, mask);
  }
  if (error) return error;
  (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET ? on_reset(qp) : on_modified(qp);
  return 0;
}
