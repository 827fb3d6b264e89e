/* SPDX-License-Identifier: Apache-2.0 */
/* Gets a memory from the agent: one thread, which connects, asks, copies what is new, and begins anew when the
 * connection ends. No agent, a later one, another one: the thread tries, NCCL's threads never wait for it. An agent of
 * a release that gives none does not answer: then nothing is copied. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "userspace/inproc/nccl/internal.h"
#include "userspace/inproc/own_socket.h"

#define RETRY_MS 500
#define RETRY_MAX_MS 5000
#define MIRROR_MS 100 /* as often as the agent reads */
#define ASKED_MS 5000 /* how long a socket that the program closed is waited on */

/* glibc 2.34 moved threads into libc under a new version; this one is there before and after. */
#if defined(__x86_64__) && defined(__GLIBC__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_sigmask, pthread_sigmask@GLIBC_2.2.5");
#endif

static int link_fd = -1;     /* the thread's, and a child's after fork */
static uint64_t link_cookie; /* of that socket */
static struct sockaddr_un address;

static int find_agent(void) {
  const char* path = secure_getenv("CWFABRIC_INPROC_SOCKET");
  const char* instance = secure_getenv("CWFABRIC_INSTANCE");
  int length;
  address.sun_family = AF_UNIX;
  if (path && *path) {
    length = snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
  } else {
    length = snprintf(address.sun_path, sizeof(address.sun_path), CW_INPROC_SOCKET_FMT,
                      instance && *instance ? instance : "default");
  }
  return length > 0 && (size_t)length < sizeof(address.sun_path);
}

/* Not what the program put in its place. */
static int still_ours(int fd) { return link_cookie != 0 && cw_socket_cookie(fd) == link_cookie; }

static int tell(int fd, uint16_t type) {
  struct cw_prof_hello message = {
      .magic = CW_INPROC_MAGIC,
      .version = CW_INPROC_VERSION,
      .type = type,
      .layout = CW_PROF_VERSION,
      .size = CW_PROF_SIZE,
  };
  return send(fd, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(message);
}

/* Its descriptor, or -1. */
static int connect_agent(void) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  link_cookie = cw_socket_cookie(fd);
  if (still_ours(fd) && connect(fd, (const struct sockaddr*)&address, sizeof(address)) == 0 && tell(fd, CW_PROF_ASK))
    return fd;
  close(fd);
  return -1;
}

/* Room for one descriptor: the kernel puts no second one in. -1: there is none with it. */
static int descriptor_of(struct msghdr* packet) {
  const struct cmsghdr* const head = CMSG_FIRSTHDR(packet);
  int fd;
  if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) return -1;
  if (head->cmsg_len != CMSG_LEN(sizeof(fd))) return -1;
  memcpy(&fd, CMSG_DATA(head), sizeof(fd));
  return fd;
}

/* 0: the connection is over, or the agent gives no memory now. */
static int hear(int fd) {
  struct cw_prof_hello message;
  union {
    struct cmsghdr head;
    char bytes[CMSG_LEN(sizeof(int))]; /* not CMSG_SPACE, which has room for two */
  } control;
  struct iovec bytes = {&message, sizeof(message)};
  struct msghdr packet = {
      .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof(int))};
  const ssize_t size = recvmsg(fd, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  int memory, good;
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  memory = descriptor_of(&packet);
  good = size == (ssize_t)sizeof(message) && message.magic == CW_INPROC_MAGIC && message.type == CW_PROF_MEMORY &&
         message.layout == CW_PROF_VERSION && memory >= 0 && !cwp_has_mirror();
  if (good && cwp_open_mirror(memory)) good = tell(fd, CW_PROF_READY);
  if (memory >= 0) close(memory);
  return size > 0 && cwp_has_mirror();
}

/* Until the connection is over. */
static void serve(int fd) {
  while (still_ours(fd)) {
    struct pollfd watch = {.fd = fd, .events = POLLIN};
    const int count = poll(&watch, 1, cwp_has_mirror() ? MIRROR_MS : ASKED_MS);
    if (!still_ours(fd)) return;
    if (count < 0 && errno != EINTR) return;
    if (count > 0 && (watch.revents & POLLIN) && !hear(fd)) return;
    if (count > 0 && !(watch.revents & POLLIN)) return;
    if (count == 0 && cwp_has_mirror()) cwp_mirror();
  }
}

static void* keep_link(void* unused) {
  int wait_ms = RETRY_MS;
  (void)unused;
  while (1) {
    const int fd = connect_agent();
    if (fd >= 0) {
      __atomic_store_n(&link_fd, fd, __ATOMIC_RELEASE);
      serve(fd);
      if (cwp_has_mirror()) wait_ms = RETRY_MS; /* it was an agent */
      cwp_close_mirror();
      __atomic_store_n(&link_fd, -1, __ATOMIC_RELEASE);
      if (still_ours(fd)) close(fd);
    }
    poll(NULL, 0, wait_ms);
    if (wait_ms < RETRY_MAX_MS) wait_ms *= 2;
  }
  return NULL;
}

void cwp_start_link(void) {
  pthread_attr_t attributes;
  sigset_t all, before;
  pthread_t thread;
  if (!find_agent() || pthread_attr_init(&attributes) != 0) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  /* Signals are the program's. */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  (void)pthread_create(&thread, &attributes, keep_link, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
}

void cwp_forget_link(void) {
  const int fd = __atomic_exchange_n(&link_fd, -1, __ATOMIC_ACQ_REL);
  if (fd >= 0 && still_ours(fd)) close(fd);
}
