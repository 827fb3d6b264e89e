/* SPDX-License-Identifier: Apache-2.0 */
/* The conversation with the agent. It may be absent, old, slow, dead or mad: none of that is the application's
 * business. One socket per process, opened at most once per second; a child of fork begins anew and knows no queue
 * pair. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "userspace/inproc/own_socket.h"
#include "userspace/inproc/verbs/internal.h"
#include "userspace/inproc/verbs/old_glibc.h"

CWV_OLD_SYMBOL(pthread_attr_setstacksize);
CWV_OLD_SYMBOL(pthread_create);
CWV_OLD_SYMBOL(pthread_sigmask);

#define SECOND_NS INT64_C(1000000000)
#define DEFAULT_DEADLINE_MS 20
#define MOST_DEADLINE_MS 1000
#define MOST_ANSWERS 64 /* that are not ours, before we stop listening to them */
#define LOCKED_AT_ONCE 256

pthread_mutex_t cwv_lock = PTHREAD_MUTEX_INITIALIZER;

static int fd = -1;
static uint64_t cookie;          /* of our socket, which may not be the one that fd is by now */
static int64_t connect_after_ns; /* not before */
static int64_t ask_after_ns;     /* not before: the agent did not answer in time */
static uint32_t last_request;
static bool reporting;
static pid_t owner; /* of all of this */

int64_t cwv_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * SECOND_NS + now.tv_nsec;
}

/* What the application put in its place is neither written to nor closed. */
static bool still_ours(void) { return fd >= 0 && cookie != 0 && cw_socket_cookie(fd) == cookie; }

static void hang_up(void) {
  if (still_ours()) close(fd);
  fd = -1;
  for (uint32_t i = 0; i < cwv_places(); i++) {
    struct cwv_qp* qp = cwv_qp_at(i);
    if (qp) qp->announced = qp->can_told = qp->answer_due = false;
  }
}

/* Queue pairs are the parent's: a child has the memory of them only. */
static void begin_anew(void) {
  hang_up();
  for (uint32_t i = 0; i < cwv_places(); i++) {
    struct cwv_qp* qp = cwv_qp_at(i);
    if (!qp) continue;
    qp->known = qp->in_line = qp->moving = false;
    qp->handle = 0;
  }
  cwv_forget_moves();
  connect_after_ns = ask_after_ns = 0;
  reporting = false;
  owner = getpid();
}

static void lock(void) { pthread_mutex_lock(&cwv_lock); }
static void unlock(void) { pthread_mutex_unlock(&cwv_lock); }
static void in_child(void) {
  pthread_mutex_init(&cwv_lock, 0);
  begin_anew();
}

__attribute__((constructor)) static void at_load(void) {
  owner = getpid();
  pthread_atfork(lock, unlock, in_child);
}

static bool socket_address(struct sockaddr_un* at) {
  const char* path = secure_getenv("CWFABRIC_INPROC_SOCKET");
  const char* instance = secure_getenv("CWFABRIC_INSTANCE");
  int length;
  memset(at, 0, sizeof(*at));
  at->sun_family = AF_UNIX;
  if (path && *path) {
    length = snprintf(at->sun_path, sizeof(at->sun_path), "%s", path);
  } else {
    length = snprintf(at->sun_path, sizeof(at->sun_path), CW_INPROC_SOCKET_FMT,
                      instance && *instance ? instance : "default");
  }
  return length > 0 && (size_t)length < sizeof(at->sun_path);
}

static bool connected(void) {
  struct sockaddr_un at;
  const int64_t now = cwv_now_ns();
  if (owner != getpid()) begin_anew(); /* a clone that ran no handler */
  if (still_ours()) return true;
  if (fd >= 0) hang_up();
  if (now < connect_after_ns || !socket_address(&at)) return false;
  connect_after_ns = now + SECOND_NS;
  fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  cookie = cw_socket_cookie(fd);
  if (still_ours() && connect(fd, (const struct sockaddr*)&at, sizeof(at)) == 0) return true;
  hang_up();
  return false;
}

/* A full socket loses the message, a broken one the connection. */
static bool tell(const void* message, size_t size) {
  if (!connected()) return false;
  if (send(fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size) return true;
  if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS) hang_up();
  return false;
}

static int64_t deadline_ns(void) {
  const char* text = secure_getenv("CWVERBS_DEADLINE_MS");
  long ms = text && *text ? strtol(text, 0, 10) : DEFAULT_DEADLINE_MS;
  if (ms < 0) ms = 0;
  if (ms > MOST_DEADLINE_MS) ms = MOST_DEADLINE_MS;
  return ms * 1000000;
}

static bool good(const struct cw_inproc_placement* answer) {
  if (answer->verdict != CW_INPROC_PLACED) return answer->flow_label == 0;
  return answer->flow_label != 0 && answer->flow_label <= 0xfffff &&
         cwv_port_of_label(answer->flow_label) == answer->udp_sport;
}

/* What the agent says. */
union word {
  struct cw_inproc_head head;
  struct cw_inproc_placement placement;
  struct cw_inproc_move_qps moves;
};

static bool is(const union word* word, ssize_t size, uint16_t type, size_t length) {
  return size == (ssize_t)length && word->head.magic == CW_INPROC_MAGIC && word->head.version == CW_INPROC_VERSION &&
         word->head.type == type;
}

/* Orders are put in line here, whoever reads them. Returns what came, below 0 for nothing, or the end. */
static ssize_t read_word(union word* word) {
  const ssize_t size = still_ours() ? recv(fd, word, sizeof(*word), MSG_DONTWAIT | MSG_TRUNC) : 0;
  if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) {
    hang_up();
    return -1;
  }
  if (is(word, size, CW_INPROC_MOVE_QPS, sizeof(word->moves))) {
    for (uint32_t i = 0; i < word->moves.count && i < CW_INPROC_MOST_MOVES; i++) cwv_order_move(&word->moves.move[i]);
  }
  return size;
}

/* Waits for the answer to `request`; what else comes is late, nonsense, or an order. */
static bool hear(uint32_t request, int64_t until_ns, struct cw_inproc_placement* answer) {
  union word word;
  for (int i = 0; i < MOST_ANSWERS; i++) {
    const int64_t left = until_ns - cwv_now_ns();
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    ssize_t size;
    if (left <= 0) return false;
    if (poll(&wait, 1, (int)((left + 999999) / 1000000)) <= 0) continue; /* time is up, or a signal came */
    size = read_word(&word);
    if (fd < 0) return false;
    if (!is(&word, size, CW_INPROC_PLACEMENT, sizeof(word.placement)) || word.placement.request != request) continue;
    *answer = word.placement;
    return good(answer);
  }
  return false;
}

bool cwv_ask(const struct cw_inproc_register_qp* qp, struct cw_inproc_placement* answer) {
  struct cw_inproc_place_qp message = {.qp = *qp};
  const int64_t now = cwv_now_ns();
  if (now < ask_after_ns) return false;
  message.qp.type = CW_INPROC_PLACE_QP;
  message.request = ++last_request;
  if (!tell(&message, sizeof(message))) return false;
  if (hear(message.request, now + deadline_ns(), answer)) return true;
  ask_after_ns = cwv_now_ns() + SECOND_NS; /* one wait per second is enough */
  return false;
}

static void tell_can(struct cwv_qp* qp) {
  struct cw_inproc_qp_can can = {.magic = CW_INPROC_MAGIC, .version = CW_INPROC_VERSION, .type = CW_INPROC_QP_CAN};
  can.lqpn = qp->self.lqpn;
  can.can = cwv_can(qp);
  memcpy(can.laddr, qp->self.laddr, sizeof(can.laddr));
  can.lag_active = qp->lag_active;
  can.lag_wanted = qp->lag_wanted;
  can.refused = cwv_refused(qp);
  qp->can_told = tell(&can, sizeof(can));
}

void cwv_announce(struct cwv_qp* qp) {
  if (!qp->known) return;
  if (!qp->announced) qp->announced = tell(&qp->self, sizeof(qp->self));
  if (qp->announced && !qp->can_told) tell_can(qp);
}

void cwv_tell_moved(struct cwv_qp* qp) {
  if (!qp->answer_due || !qp->announced) return;
  qp->answer.magic = CW_INPROC_MAGIC;
  qp->answer.version = CW_INPROC_VERSION;
  qp->answer.type = CW_INPROC_QP_MOVED;
  qp->answer.lqpn = qp->self.lqpn;
  memcpy(qp->answer.laddr, qp->self.laddr, sizeof(qp->answer.laddr));
  qp->answer.udp_sport = qp->self.udp_sport;
  qp->answer.lag_active = qp->lag_active;
  qp->answer.lag_wanted = qp->lag_wanted;
  qp->answer_due = !tell(&qp->answer, sizeof(qp->answer));
}

static void tell_sums(struct cwv_qp* qp) {
  struct cw_inproc_qp_sums sums = {.magic = CW_INPROC_MAGIC, .version = CW_INPROC_VERSION, .type = CW_INPROC_QP_SUMS};
  const struct cwv_share all = cwv_sum(qp);
  const uint64_t completed = all.completed + atomic_load(&qp->errors);
  sums.messages = all.messages;
  if (!qp->announced || (sums.messages == qp->told_messages && completed == qp->told_completed)) return;
  sums.lqpn = qp->self.lqpn;
  memcpy(sums.laddr, qp->self.laddr, sizeof(sums.laddr));
  sums.bytes = all.bytes;
  sums.errors = atomic_load(&qp->errors);
  sums.completion_samples = atomic_load(&qp->samples);
  sums.completion_p50_ns = cwv_median_ns(qp);
  sums.completion_max_ns = atomic_load(&qp->max_ns);
  if (!tell(&sums, sizeof(sums))) return;
  qp->told_messages = sums.messages;
  qp->told_completed = completed;
}

void cwv_retire(struct cwv_qp* qp) {
  struct cw_inproc_register_qp end = qp->self;
  if (qp->known && qp->announced) {
    tell_sums(qp);
    end.type = CW_INPROC_UNREGISTER_QP;
    (void)tell(&end, sizeof(end));
  }
  qp->known = qp->announced = qp->can_told = qp->answer_due = qp->port_moved = qp->lag_asked = false;
  qp->handle = 0;
  qp->lag_active = qp->lag_wanted = 0;
  memset(&qp->order, 0, sizeof(qp->order));
}

/* Orders, late answers, and the end of the connection. */
static void drain(void) {
  union word word;
  for (int i = 0; i < MOST_ANSWERS && fd >= 0; i++) {
    if (read_word(&word) < 0) return;
  }
}

/* Until the agent says something, or it is time to report. */
static void listen_until(int64_t then_ns) {
  struct pollfd wait = {.events = POLLIN};
  const int64_t left = then_ns - cwv_now_ns();
  lock();
  wait.fd = still_ours() ? fd : -1; /* then poll only sleeps */
  unlock();
  if (left > 0) (void)poll(&wait, 1, (int)((left + 999999) / 1000000));
}

static void report_all(void) {
  lock();
  for (uint32_t i = 0; i < cwv_places(); i++) {
    struct cwv_qp* qp = cwv_qp_at(i);
    if (qp && qp->known) {
      cwv_announce(qp);
      cwv_tell_moved(qp);
      cwv_ask_lag(qp);
      tell_sums(qp);
    }
    if ((i + 1) % LOCKED_AT_ONCE == 0) { /* somebody may want to connect meanwhile */
      unlock();
      lock();
    }
  }
  unlock();
}

static void* serve(void* unused) {
  int64_t report_ns = cwv_now_ns() + SECOND_NS;
  (void)unused;
  for (;;) {
    listen_until(report_ns);
    lock();
    drain();
    unlock();
    cwv_make_moves();
    if (cwv_now_ns() < report_ns) continue;
    report_all();
    report_ns = cwv_now_ns() + SECOND_NS;
  }
  return 0;
}

void cwv_start_reporter(void) {
  pthread_t thread;
  pthread_attr_t attributes;
  sigset_t all, before;
  if (reporting) return;
  reporting = true; /* once, whatever comes of it */
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  sigfillset(&all); /* the application's signals are for its own threads */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  (void)pthread_create(&thread, &attributes, serve, 0);
  pthread_sigmask(SIG_SETMASK, &before, 0);
  pthread_attr_destroy(&attributes);
}
