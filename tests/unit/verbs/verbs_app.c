/* SPDX-License-Identifier: Apache-2.0 */
/* An application of libibverbs, for tests with libcwverbs preloaded: verbs_app CASE. Knows nothing of the library.
 * Prints what the provider was given; ends with 0 when all went as it does without the library. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/verbs/fake_ibverbs.h"
#include "tests/unit/verbs/fake_mlx5.h"

#define BYTES 64

static struct ibv_context* context;
static struct ibv_pd* pd;
static uint32_t remote_qpn = 0x77;

static struct ibv_qp* make_qp(void) {
  struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};
  return ibv_create_qp(pd, &attr);
}

static int connect_qp(struct ibv_qp* qp, uint32_t label) {
  static const uint8_t remote[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 10};
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .dest_qp_num = remote_qpn, .path_mtu = IBV_MTU_4096};
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.flow_label = label;
  memcpy(attr.ah_attr.grh.dgid.raw, remote, 16);
  const int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU);
  if (attr.ah_attr.grh.flow_label != label) abort(); /* the application's memory */
  return error;
}

static void post(struct ibv_qp* qp, int n) {
  struct ibv_sge sge = {.length = BYTES};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* bad;
  struct ibv_wc wc[4];
  for (int i = 0; i < n; i++) {
    if (qp->context->ops.post_send(qp, &wr, &bad) != 0) abort();
    while (ibv_poll_cq(fake_cq(context), 4, wc) > 0) {
    }
  }
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + (double)t.tv_nsec / 1e6;
}

/* label MS, once for each of three queue pairs. */
static int connect_three(uint32_t label) {
  for (int i = 0; i < 3; i++) {
    struct ibv_qp* qp = make_qp();
    const double before = now_ms();
    if (connect_qp(qp, label) != 0) return 1;
    printf("%x %.1f\n", fake_label(qp), now_ms() - before);
  }
  return 0;
}

static int traffic(void) {
  struct ibv_qp* qp = make_qp();
  struct ibv_sge sge = {.length = BYTES};
  struct ibv_send_wr second = {.sg_list = &sge, .num_sge = 1};
  struct ibv_send_wr first = {.next = &second, .sg_list = &sge, .num_sge = 1};
  struct ibv_send_wr* bad = 0;
  if (connect_qp(qp, 0) != 0) return 1;
  post(qp, 100);
  fake_refuse_posts(true); /* the second of two is not counted */
  if (qp->context->ops.post_send(qp, &first, &bad) == 0 || bad != &second) return 1;
  return ibv_destroy_qp(qp);
}

/* A provider that fails and sets nothing: what the application has there stays, and nobody follows it. */
static int broken(void) {
  struct ibv_qp* qp = make_qp();
  struct ibv_send_wr second = {0};
  struct ibv_send_wr first = {.next = &second};
  struct ibv_send_wr* const before[] = {0, (struct ibv_send_wr*)8};
  if (connect_qp(qp, 0) != 0) return 1;
  post(qp, 10);
  fake_refuse_all_posts(true);
  for (int i = 0; i < 2; i++) {
    struct ibv_send_wr* bad = before[i];
    if (qp->context->ops.post_send(qp, &first, &bad) == 0 || bad != before[i]) return 3;
  }
  return ibv_destroy_qp(qp);
}

static int extended(void) {
  struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC,
                                     .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                     .pd = pd,
                                     .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE};
  struct ibv_qp* qp = ibv_create_qp_ex(context, &attr);
  struct ibv_qp_ex* ex = (struct ibv_qp_ex*)qp;
  struct ibv_wc wc;
  if (connect_qp(qp, 0) != 0) return 1;
  for (int i = 0; i < 50; i++) {
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, 1, 2);
    ibv_wr_set_sge(ex, 1, 2, BYTES);
    ibv_wr_rdma_write(ex, 1, 2);
    ibv_wr_set_sge(ex, 1, 2, BYTES);
    if (ibv_wr_complete(ex) != 0) return 1;
    while (ibv_poll_cq(fake_cq(context), 1, &wc) > 0) {
    }
  }
  return ibv_destroy_qp(qp);
}

static void* busy(void* unused) {
  for (int i = 0; i < 50; i++) {
    struct ibv_qp* qp = make_qp();
    if (connect_qp(qp, 0) != 0) abort();
    post(qp, 20);
    ibv_destroy_qp(qp);
  }
  return unused;
}

static int threads(void) {
  pthread_t thread[2];
  for (int i = 0; i < 2; i++) pthread_create(&thread[i], 0, busy, 0);
  for (int i = 0; i < 2; i++) pthread_join(thread[i], 0);
  return 0;
}

/* The child of a fork connects one of its own. */
static int forks(void) {
  struct ibv_qp* qp = make_qp();
  int status = 1;
  if (connect_qp(qp, 0) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    struct ibv_qp* own = make_qp();
    _exit(connect_qp(own, 0) == 0 && fake_label(own) != 0 ? 0 : 1);
  }
  waitpid(child, &status, 0);
  if (connect_qp(make_qp(), 0) != 0) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int sockets_of_this_process(void) {
  char path[64], target[64];
  int found = 0;
  for (int fd = 0; fd < 64; fd++) {
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n > 0 && strncmp(target, "socket:", 7) == 0) found++;
  }
  return found;
}

static int execs(char** argv) {
  char* again[] = {argv[0], "sockets", 0};
  const int before = sockets_of_this_process();
  if (connect_qp(make_qp(), 0) != 0) return 1;
  if (sockets_of_this_process() != before + 1) return 2;
  printf("%d\n", before);
  fflush(stdout);
  execv("/proc/self/exe", again);
  return 3;
}

/* Closes what it does not know, and has the numbers again at once for sockets of its own: ends in order. */
static int closes(void) {
  int end = -1;
  char byte;
  if (connect_qp(make_qp(), 0) != 0) return 1;
  for (int fd = 3; fd < 64; fd++) {
    struct stat info;
    int pair[2];
    if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) continue;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0 || dup2(pair[0], fd) != fd) return 2;
    close(pair[0]);
    end = pair[1];
    break;
  }
  if (end < 0) return 6;
  /* Until it has a connection again; the reporter has had its turn by then, too. */
  for (int i = 0; i < 300; i++) {
    struct ibv_qp* qp = make_qp();
    if (connect_qp(qp, 0) != 0) return 3;
    post(qp, 1);
    if (fake_label(qp) != 0) break;
    if (i == 299) return 4;
    usleep(100000);
  }
  /* Neither written to nor closed. */
  if (recv(end, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN) return 5;
  return 0;
}

static int to_rts(struct ibv_qp* qp) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* Queue pairs that are connected and stay; of what comes on standard input each line is one change of their
 * attributes, by the application itself, and the last one the end. */
static int stay(int n, uint32_t label) {
  struct ibv_qp* qps[FAKE_MLX5_QPNS];
  for (int i = 0; i < n; i++) {
    qps[i] = make_qp();
    remote_qpn = 0x1000 + (uint32_t)i;
    if (connect_qp(qps[i], label) != 0 || to_rts(qps[i]) != 0) return 1;
  }
  printf("ready\n");
  fflush(stdout);
  for (int c; (c = getchar()) != EOF;) {
    for (int i = 0; i < n && c == '\n'; i++) {
      if (to_rts(qps[i]) != 0) return 1;
    }
  }
  for (int i = 0; i < n; i++) {
    if (ibv_destroy_qp(qps[i]) != 0) return 1;
  }
  return 0;
}

/* Destroys a queue pair while it is being moved: the provider must have done with it by then. */
static int destroy_moving(void) {
  const int fd = open(getenv("FAKE_MLX5_LOG"), O_RDWR);
  struct fake_mlx5_log* log = mmap(0, sizeof(*log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  struct ibv_qp* qp = make_qp();
  if (log == MAP_FAILED || connect_qp(qp, 0) != 0 || to_rts(qp) != 0) return 1;
  printf("ready\n");
  fflush(stdout);
  for (int i = 0; atomic_load(&log->inside) == 0; i++) {
    if (i == 3000) return 3;
    usleep(10000);
  }
  if (ibv_destroy_qp(qp) != 0) return 4;
  return atomic_load(&log->inside) == 0 && atomic_load(&log->changes) == 1 ? 0 : 5;
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  int result = 2;
  context = ibv_open_device(0);
  pd = ibv_alloc_pd(context);
  if (!strcmp(what, "connect")) result = connect_three(0);
  if (!strcmp(what, "own")) result = connect_three(0x12345);
  if (!strcmp(what, "ucx")) result = connect_three(0xffffffff);
  if (!strcmp(what, "refuse")) fake_refuse_labels(true), result = connect_three(0);
  if (!strcmp(what, "traffic")) result = traffic();
  if (!strcmp(what, "broken")) result = broken();
  if (!strcmp(what, "extended")) result = extended();
  if (!strcmp(what, "threads")) result = threads();
  if (!strcmp(what, "closes")) result = closes();
  if (!strcmp(what, "forks")) result = forks();
  if (!strcmp(what, "stay")) result = stay(argc > 2 ? atoi(argv[2]) : 1, 0);
  if (!strcmp(what, "stay_own")) result = stay(1, 0x12345);
  if (!strcmp(what, "destroy_moving")) result = destroy_moving();
  if (!strcmp(what, "execs")) result = execs(argv);
  if (!strcmp(what, "sockets")) printf("%d\n", sockets_of_this_process()), result = 0;
  if (!strcmp(what, "wait")) { /* until the agent's other end is closed, and on */
    struct ibv_qp* qp = make_qp();
    result = connect_qp(qp, 0);
    printf("%x\n", fake_label(qp));
    fflush(stdout);
    (void)getchar();
    post(qp, 10);
    result |= connect_qp(make_qp(), 0) | ibv_destroy_qp(qp);
  }
  fflush(stdout);
  return result != 0 ? result : ibv_close_device(context) ? 9 : 0;
}
