/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that events are written to: this process's alone, so that agents may come and go; mirror.c copies it into
 * the agent's. Made once, at the first communicator; never given back, because a callback may be in it. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "userspace/inproc/nccl/internal.h"

struct cw_prof_shared* cwp_shared;
int32_t cwp_pid;

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* init alone takes it */

static void copy_text(char* to, size_t size, const char* prefix, const char* from) {
  size_t n = strnlen(prefix, size - 1);
  memcpy(to, prefix, n);
  strncpy(to + n, from, size - n - 1);
}

static void name_job(struct cw_prof_shared* shared) {
  static const char* const known[][2] = {
      {"CWFABRIC_JOB", ""}, {"SLURM_JOB_ID", "slurm-"}, {"PBS_JOBID", "pbs-"}, {"LSB_JOBID", "lsf-"}};
  for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
    const char* value = secure_getenv(known[i][0]);
    if (!value || !*value) continue;
    copy_text(shared->label, sizeof(shared->label), known[i][1], value);
    return;
  }
}

/* A child has no use for the parent's memory and would write into it. */
static void in_child(void) {
  pthread_mutex_init(&opening, NULL);
  if (!cwp_shared) return;
  munmap(cwp_shared, CW_PROF_SIZE);
  __atomic_store_n(&cwp_shared, NULL, __ATOMIC_RELEASE);
  cwp_forget_link();
  cwp_forget_mirror();
}

static struct cw_prof_shared* make(void) {
  struct cw_prof_shared* shared;
  static int watched;
  /* Pages that are never touched take no memory. */
  shared = mmap(NULL, CW_PROF_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shared == MAP_FAILED) return NULL;
  if (!watched && pthread_atfork(NULL, NULL, in_child) == 0) watched = 1;
  cwp_pid = getpid();
  shared->version = CW_PROF_VERSION;
  shared->pid = (uint32_t)cwp_pid;
  shared->start_ns = cwp_now_ns();
  prctl(PR_GET_NAME, shared->process);
  name_job(shared);
  for (int pool = 0; pool < CWP_POOL_PAIR; ++pool) cwp_reset_pool(pool);
  __atomic_store_n(&shared->magic, CW_PROF_MAGIC, __ATOMIC_RELEASE);
  return shared;
}

struct cw_prof_shared* cwp_open_memory(void) {
  pthread_mutex_lock(&opening);
  if (!cwp_shared) {
    __atomic_store_n(&cwp_shared, make(), __ATOMIC_RELEASE);
    if (cwp_shared) cwp_start_link();
  }
  pthread_mutex_unlock(&opening);
  return cwp_shared;
}
