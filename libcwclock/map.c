/* SPDX-License-Identifier: Apache-2.0 */
/* Finding, checking and mapping the page. System calls are made here only. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libcwclock/internal.h"

#define LOOK_INTERVAL_NS 100000000

struct cw_clock cwck_default;

/* glibc's stat functions carry symbol versions of 2.33; this one runs everywhere. */
static int get_status(int dir, const char* path, int flags, struct statx* status) {
  return (int)syscall(SYS_statx, dir, path, flags, STATX_TYPE | STATX_MODE | STATX_SIZE | STATX_INO, status);
}

static const char* path_of(const struct cw_clock* clock) {
  const char* path;
  if (clock != &cwck_default) return clock->path;
  path = secure_getenv(CW_CLOCK_ENVIRONMENT);
  return path && *path ? path : CW_CLOCK_DEFAULT_PATH;
}

/* A page on a disk may be older than this boot, and its clocks have started afresh. */
static int check_boot(const struct cw_clock_page* page) {
  char id[sizeof(page->boot_id)] = "";
  ssize_t length = 0;
  int fd;
  if (!page->boot_id[0]) return 0;
  fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    length = read(fd, id, 36);
    close(fd);
  }
  if (length != 36) return 0; /* no /proc here: the line's own times still refuse most */
  return memcmp(id, page->boot_id, 36) == 0 ? 0 : CW_CLOCK_EBOOT;
}

/* In another time namespace CLOCK_MONOTONIC and CLOCK_BOOTTIME have another zero. */
static int check_time_namespace(const struct cw_clock_page* page) {
  struct statx status;
  if (!page->time_namespace) return 0;
  if (get_status(AT_FDCWD, "/proc/self/ns/time", 0, &status) != 0) return 0;
  return status.stx_ino == page->time_namespace ? 0 : CW_CLOCK_ETIMENS;
}

static int check_header(const struct cw_clock_page* page) {
  int error;
  if (page->magic != CW_CLOCK_PAGE_MAGIC) return CW_CLOCK_EFORMAT;
  if (page->version != CW_CLOCK_PAGE_VERSION) return CW_CLOCK_EVERSION;
  if (page->size < sizeof(*page)) return CW_CLOCK_EFORMAT;
  if (page->base_clock != CLOCK_MONOTONIC && page->base_clock != CLOCK_MONOTONIC_RAW) return CW_CLOCK_EVERSION;
  error = check_boot(page);
  return error ? error : check_time_namespace(page);
}

/* A file that may be cut by others could kill this process with SIGBUS, and its numbers could be anybody's. */
static int check_file(int fd) {
  struct statx status;
  if (get_status(fd, "", AT_EMPTY_PATH, &status) != 0) return CW_CLOCK_ESYSTEM;
  if ((status.stx_mode & S_IFMT) != S_IFREG) return CW_CLOCK_EFORMAT;
  if (status.stx_mode & (S_IWGRP | S_IWOTH)) return CW_CLOCK_EUNSAFE;
  return status.stx_size < sizeof(struct cw_clock_page) ? CW_CLOCK_EFORMAT : 0;
}

static int open_error(void) {
  if (errno == ENOENT || errno == ENOTDIR) return CW_CLOCK_ENOPAGE;
  return errno == EACCES || errno == EPERM ? CW_CLOCK_EPERMISSION : CW_CLOCK_ESYSTEM;
}

/* Publishes the mapping: over the old one, which stays valid at every instant, or as the first. */
static int install(struct cw_clock* clock, int fd, const struct cw_clock_page* fresh) {
  const struct cw_clock_page* old = __atomic_load_n(&clock->page, __ATOMIC_ACQUIRE);
  if (!old && __atomic_compare_exchange_n(&clock->page, &old, fresh, 0, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE)) return 0;
  /* Not by mmap(): the thread sanitizer would take it for a write to what others read. */
  const long over = syscall(SYS_mmap, old, CW_CLOCK_PAGE_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
  munmap((void*)fresh, CW_CLOCK_PAGE_BYTES);
  return over == -1 ? CW_CLOCK_ESYSTEM : 0;
}

static int map_page(struct cw_clock* clock) {
  struct cw_clock_page* page;
  int error;
  int fd = open(path_of(clock), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return open_error();
  error = check_file(fd);
  if (error == 0) {
    page = mmap(NULL, CW_CLOCK_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
      error = CW_CLOCK_ESYSTEM;
    } else {
      error = check_header(page);
      if (error) {
        munmap(page, CW_CLOCK_PAGE_BYTES);
      } else {
        error = install(clock, fd, page);
      }
    }
  }
  close(fd);
  return error;
}

int cwck_look_for_page(struct cw_clock* clock, int64_t boot_ns) {
  int saved_errno = errno;
  int64_t after_ns = __atomic_load_n(&clock->look_after_ns, __ATOMIC_RELAXED);
  int error;
  if (boot_ns < after_ns) return 0;
  if (!__atomic_compare_exchange_n(&clock->look_after_ns, &after_ns, boot_ns + LOOK_INTERVAL_NS, 0, __ATOMIC_RELAXED,
                                   __ATOMIC_RELAXED)) {
    return 0; /* another thread looks */
  }
  error = map_page(clock);
  __atomic_store_n(&clock->last_error, error, __ATOMIC_RELAXED);
  if (error != CW_CLOCK_ESYSTEM) errno = saved_errno;
  return error == 0;
}

int cw_clock_open(const char* path, struct cw_clock** clock) {
  struct cw_clock* made;
  size_t length;
  int error;
  if (!clock) return CW_CLOCK_EINVALID;
  *clock = NULL;
  if (!path) path = path_of(&cwck_default);
  length = strlen(path) + 1;
  made = calloc(1, sizeof(*made) + length);
  if (!made) return CW_CLOCK_ESYSTEM;
  memcpy(made->path, path, length);
  error = map_page(made);
  if (error) {
    free(made);
    return error;
  }
  *clock = made;
  return 0;
}

void cw_clock_close(struct cw_clock* clock) {
  int saved_errno = errno;
  if (!clock) return;
  if (clock->page) munmap((void*)clock->page, CW_CLOCK_PAGE_BYTES);
  free(clock);
  errno = saved_errno;
}
