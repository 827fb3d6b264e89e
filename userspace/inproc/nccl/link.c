/* SPDX-License-Identifier: Apache-2.0 */
/* Brings the memory to the agent: one thread, which connects, hands the descriptor over, and waits for the end of the
 * connection to begin anew. No agent, a later one, another one: the thread tries, NCCL's threads never wait for it. */
#include <errno.h>
#include <fcntl.h>
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

#define RETRY_MS 500
#define RETRY_MAX_MS 5000

/* glibc 2.34 moved threads into libc under a new version; this one is there before and after. */
#if defined(__x86_64__) && defined(__GLIBC__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_sigmask, pthread_sigmask@GLIBC_2.2.5");
#endif

static int link_fd = -1; /* the thread's, and a child's after fork */
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

static int hand_over(int fd, int memory) {
  struct cw_prof_register message = {
      .magic = CW_INPROC_MAGIC,
      .version = CW_INPROC_VERSION,
      .type = CW_PROF_REGISTER,
      .layout = CW_PROF_VERSION,
      .pid = (uint32_t)cwp_pid,
      .size = CW_PROF_SIZE,
  };
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec bytes = {&message, sizeof(message)};
  struct msghdr packet = {
      .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
  memset(&control, 0, sizeof(control));
  control.head.cmsg_level = SOL_SOCKET;
  control.head.cmsg_type = SCM_RIGHTS;
  control.head.cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(&control.head), &memory, sizeof(memory));
  return sendmsg(fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(message);
}

/* Its descriptor, or -1. */
static int connect_agent(void) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (connect(fd, (const struct sockaddr*)&address, sizeof(address)) == 0 && hand_over(fd, cwp_memory_fd())) return fd;
  close(fd);
  return -1;
}

static void wait_for_end(int fd) {
  char nothing[64];
  while (1) {
    struct pollfd watch = {.fd = fd, .events = POLLIN};
    if (poll(&watch, 1, -1) < 0 && errno != EINTR) return;
    if (watch.revents & (POLLHUP | POLLERR | POLLNVAL)) return;
    if ((watch.revents & POLLIN) && recv(fd, nothing, sizeof(nothing), MSG_DONTWAIT) == 0) return;
  }
}

static void* keep_link(void* unused) {
  int wait_ms = RETRY_MS;
  (void)unused;
  while (1) {
    const int fd = connect_agent();
    if (fd >= 0) {
      __atomic_store_n(&link_fd, fd, __ATOMIC_RELEASE);
      wait_for_end(fd);
      __atomic_store_n(&link_fd, -1, __ATOMIC_RELEASE);
      close(fd);
      wait_ms = RETRY_MS;
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
  if (fd >= 0) close(fd);
}
