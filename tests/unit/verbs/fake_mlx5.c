/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/verbs/fake_mlx5.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

typedef int (*post_fn)(struct ibv_qp*, struct ibv_send_wr*, struct ibv_send_wr**);

static struct fake_mlx5_log nowhere, *record = &nowhere;
static post_fn behind;

static long number(const char* name) {
  const char* text = getenv(name);
  return text ? strtol(text, 0, 10) : 0;
}

__attribute__((constructor)) static void open_log(void) {
  const char* path = getenv("FAKE_MLX5_LOG");
  const int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd < 0 || ftruncate(fd, sizeof(*record)) != 0) return;
  void* at = mmap(0, sizeof(*record), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) record = at;
  close(fd);
}

static int post_send(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad) {
  return behind(qp, wr, bad);
}

/* A context's functions are a provider's: that is how it is known whose it is. */
post_fn fake_mlx5_post_send(post_fn real) {
  behind = real;
  return post_send;
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void take_time(void) {
  const long us = number("FAKE_MLX5_US");
  const struct timespec length = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
  const uint32_t now = atomic_fetch_add(&record->inside, 1) + 1;
  if (now > atomic_load(&record->most_inside)) atomic_store(&record->most_inside, now);
  prctl(PR_SET_TIMERSLACK, 1UL); /* the time asked for, as near as can be */
  if (us > 0) clock_nanosleep(CLOCK_MONOTONIC, 0, &length, 0);
}

static int done(int error) {
  atomic_store(&record->last_ns, now_ns());
  atomic_fetch_sub(&record->inside, 1);
  return error;
}

int mlx5dv_modify_qp_udp_sport(struct ibv_qp* qp, uint16_t port) {
  const int error = (int)number("FAKE_MLX5_ERRNO");
  const uint32_t qpn = qp->qp_num;
  const int64_t start_ns = now_ns();
  if (qp->state != IBV_QPS_RTS) return EOPNOTSUPP;
  take_time();
  if (error) {
    atomic_fetch_add(&record->refused, 1);
    return done(error);
  }
  atomic_store(&record->port[qpn % FAKE_MLX5_QPNS], port);
  atomic_fetch_add(&record->changes, 1);
  atomic_fetch_add(&record->spent_ns, (uint64_t)(now_ns() - start_ns));
  return done(0);
}

int mlx5dv_query_qp_lag_port(struct ibv_qp* qp, uint8_t* wanted, uint8_t* active) {
  const uint8_t chosen = atomic_load(&record->lag[qp->qp_num % FAKE_MLX5_QPNS]);
  atomic_fetch_add(&record->lag_questions, 1);
  if (number("FAKE_MLX5_PORTS") == 0) return EOPNOTSUPP;
  *wanted = chosen;
  *active = chosen ? chosen : 1;
  return 0;
}

int mlx5dv_modify_qp_lag_port(struct ibv_qp* qp, uint8_t port) {
  if (number("FAKE_MLX5_PORTS") == 0) return EOPNOTSUPP;
  if (port == 0 || port > number("FAKE_MLX5_PORTS")) return EINVAL;
  take_time();
  atomic_store(&record->lag[qp->qp_num % FAKE_MLX5_QPNS], port);
  atomic_fetch_add(&record->lag_changes, 1);
  return done(0);
}
