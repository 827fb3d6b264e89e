/* SPDX-License-Identifier: Apache-2.0 */
/* Moves of connected queue pairs, which the agent orders: one at a time, by the thread that talks to the agent, never
 * by one of the application's. While a call of the provider runs no lock is held, and the queue pair is kept from being
 * destroyed. */
#include <errno.h>
#include <string.h>

#include "userspace/inproc/verbs/internal.h"

#define NO_CALL ENOSYS

static struct cwv_qp* due[CWV_MAX_QPS]; /* a ring; each is in it once at most */
static uint32_t due_head, due_tail;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

struct job {
  struct ibv_qp* handle;
  struct cwv_provider call;
  struct cwv_order order;
  int port_error, error;
  uint8_t lag_active, lag_wanted;
  bool lag_known;
};

void cwv_forget_moves(void) {
  due_head = due_tail = 0;
  pthread_cond_init(&moved, 0);
}

static bool wait_in_line(struct cwv_qp* qp) {
  if (qp->in_line) return true;
  if (due_head - due_tail == CWV_MAX_QPS) return false;
  due[due_head++ % CWV_MAX_QPS] = qp;
  qp->in_line = true;
  return true;
}

static struct cwv_context* context_of(const struct cwv_qp* qp) {
  return qp->handle ? cwv_find_context(qp->handle->context) : 0;
}

uint32_t cwv_can(const struct cwv_qp* qp) {
  const struct cwv_context* context = context_of(qp);
  uint32_t can = 0;
  if (context && context->provider.set_port && !context->refused_port) can |= CW_INPROC_CAN_MOVE_PORT;
  if (qp->lag_active) can |= CW_INPROC_CAN_MOVE_LAG;
  if (qp->own_label) can |= CW_INPROC_OWN_LABEL;
  if (qp->own_failover) can |= CW_INPROC_OWN_FAILOVER;
  return can;
}

uint16_t cwv_refused(const struct cwv_qp* qp) {
  const struct cwv_context* context = context_of(qp);
  return context ? (uint16_t)context->refused_port : 0;
}

static void answer(struct cwv_qp* qp, uint32_t request, int error) {
  if (!request) return;
  qp->answer.request = request;
  qp->answer.error = (uint32_t)error;
  qp->answer_due = true;
  cwv_tell_moved(qp);
}

/* 0, or why not. */
static int may_move(const struct cwv_qp* qp, const struct cwv_order* order) {
  const uint32_t can = cwv_can(qp);
  if (!qp->known || !qp->handle) return ENOENT;
  if (can & (CW_INPROC_OWN_FAILOVER | CW_INPROC_OWN_LABEL)) return EPERM;
  if (!order->port && !order->lag_port) return EINVAL;
  if (order->port && order->port < CW_INPROC_FIRST_PORT) return EINVAL;
  if (order->port && !(can & CW_INPROC_CAN_MOVE_PORT)) return EOPNOTSUPP;
  if (order->lag_port && !(can & CW_INPROC_CAN_MOVE_LAG)) return EOPNOTSUPP;
  return 0;
}

void cwv_order_move(const struct cw_inproc_move* move) {
  const struct cwv_order order = {.request = move->request, .port = move->udp_sport, .lag_port = move->lag_port};
  struct cwv_qp* qp = cwv_find_qp_of_address(move->laddr, move->lqpn);
  int error;
  if (!qp) return; /* it is gone: its end was told */
  error = may_move(qp, &order);
  if (!error && !wait_in_line(qp)) error = ENOBUFS;
  if (error) {
    answer(qp, order.request, error);
  } else {
    qp->order = order;
  }
}

/* The application changed its attributes, which may have given it its old port back. */
void cwv_keep_port(struct cwv_qp* qp) {
  if (!qp->port_moved || qp->order.port || !wait_in_line(qp)) return;
  qp->order.port = qp->self.udp_sport;
}

/* Once for each queue pair on a device that may be a bond. */
void cwv_ask_lag(struct cwv_qp* qp) {
  const struct cwv_context* context = context_of(qp);
  if (!context || qp->lag_asked || !context->provider.query_lag || context->no_bond) return;
  if (qp->handle->state == IBV_QPS_RTS) (void)wait_in_line(qp);
}

static bool take(struct cwv_qp** qp, struct job* job) {
  const struct cwv_context* context;
  memset(job, 0, sizeof(*job));
  while (due_head != due_tail) {
    *qp = due[due_tail++ % CWV_MAX_QPS];
    (*qp)->in_line = false;
    context = context_of(*qp);
    if (!(*qp)->known || !context) continue;
    job->handle = (*qp)->handle;
    job->call = context->provider;
    job->order = (*qp)->order;
    memset(&(*qp)->order, 0, sizeof((*qp)->order));
    (*qp)->moving = true;
    return true;
  }
  return false;
}

/* The provider's calls return an errno; one that returns something else failed, too. */
static int error_of(int result) { return result >= 0 ? result : result == -1 && errno ? errno : -result; }

static void run(struct job* job) {
  uint8_t wanted = 0, active = 0;
  errno = 0;
  if (job->handle->state != IBV_QPS_RTS) {
    job->error = ENOTCONN;
    return;
  }
  if (job->order.port)
    job->error = job->port_error =
        job->call.set_port ? error_of(job->call.set_port(job->handle, job->order.port)) : NO_CALL;
  if (job->port_error == EOPNOTSUPP && job->handle->state != IBV_QPS_RTS) { /* it left RTS in between */
    job->port_error = 0;
    job->error = ENOTCONN;
    return;
  }
  if (job->order.lag_port && !job->error)
    job->error = job->call.set_lag ? error_of(job->call.set_lag(job->handle, job->order.lag_port)) : NO_CALL;
  if (!job->call.query_lag || (job->order.port && !job->order.lag_port)) return;
  job->lag_known = job->call.query_lag(job->handle, &wanted, &active) == 0;
  job->lag_wanted = wanted;
  job->lag_active = active;
}

/* In RTS the call fails so only where the device does not have it: then for none of its queue pairs. */
static void take_back_port(struct cwv_context* context) {
  context->refused_port = EOPNOTSUPP;
  for (uint32_t i = 0; i < cwv_places(); i++) {
    struct cwv_qp* qp = cwv_qp_at(i);
    if (!qp || !qp->known || context_of(qp) != context) continue;
    qp->can_told = false;
    cwv_announce(qp);
  }
}

static void settle(struct cwv_qp* qp, const struct job* job) {
  struct cwv_context* context = context_of(qp);
  if (!qp->known || qp->handle != job->handle || !context) return; /* reset meanwhile */
  if (job->error == ENOTCONN) {
    answer(qp, job->order.request, job->error);
    return;
  }
  if (job->order.port && !job->port_error) {
    qp->self.udp_sport = job->order.port;
    qp->label = cwv_label_of_port(job->order.port);
    qp->port_moved = true;
  }
  if (job->port_error == EOPNOTSUPP) take_back_port(context);
  if (job->call.query_lag && !job->order.port && !job->order.lag_port) { /* it was asked about the bond only */
    qp->lag_asked = true;
    if (!job->lag_known) context->no_bond = true;
  }
  if (job->lag_known && (qp->lag_active != job->lag_active || qp->lag_wanted != job->lag_wanted)) {
    qp->lag_active = job->lag_active;
    qp->lag_wanted = job->lag_wanted;
    qp->can_told = false;
  }
  cwv_announce(qp);
  answer(qp, job->order.request, job->error);
}

void cwv_make_moves(void) {
  struct cwv_qp* qp;
  struct job job;
  for (;;) {
    pthread_mutex_lock(&cwv_lock);
    if (!take(&qp, &job)) break;
    pthread_mutex_unlock(&cwv_lock);
    run(&job);
    pthread_mutex_lock(&cwv_lock);
    settle(qp, &job);
    qp->moving = false;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&cwv_lock);
  }
  pthread_mutex_unlock(&cwv_lock);
}

void cwv_await_move(struct cwv_qp* qp) {
  while (qp->moving) pthread_cond_wait(&moved, &cwv_lock);
}
