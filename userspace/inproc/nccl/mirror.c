/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's memory is made by the agent, and another agent brings another one. Callbacks write to the process's own
 * memory, which stays; here what is new in it is copied, ten times per second and when a communicator ends. Readers of
 * either side go by the same rules (cw_profiler.h): a slot is looked at between two looks at its generation, a record
 * between two at its number. */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "userspace/inproc/nccl/internal.h"

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif

static pthread_mutex_t copying = PTHREAD_MUTEX_INITIALIZER;
static struct cw_prof_shared* mirror; /* under copying */
static uint64_t copied;               /* records before this one are done with */

/* Word by word: the other side reads, and ours may be written, meanwhile. */
static void copy_words(void* to, const void* from, size_t size) {
  uint64_t* out = to;
  const uint64_t* in = from;
  for (size_t i = 0; i < size / sizeof(*in); ++i)
    __atomic_store_n(&out[i], __atomic_load_n(&in[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* Every slot's first word has its generation in the low half and one more number. Of a slot that lives on only words
 * change, as they do under its writer; another one's never stand under its generation. */
static void copy_slot(void* to, const void* from, size_t size) {
  uint64_t copy[sizeof(struct cw_prof_op) / sizeof(uint64_t)];
  uint32_t* const theirs = to;
  const uint32_t* const ours = from;
  const uint32_t now = cwp_generation(ours);
  const uint32_t before = __atomic_load_n(theirs, __ATOMIC_RELAXED);
  copy_words(copy, from, size);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (!(now & 1) || cwp_generation(ours) != now) {
    if (before & 1) __atomic_store_n(theirs, before + 1, __ATOMIC_RELEASE); /* it is over */
    return;
  }
  if (before != now) __atomic_store_n(theirs, now - 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  __atomic_store_n(theirs + 1, (uint32_t)(copy[0] >> 32), __ATOMIC_RELAXED);
  copy_words((uint64_t*)to + 1, copy + 1, size - sizeof(uint64_t));
  __atomic_store_n(theirs, now, __ATOMIC_RELEASE);
}

/* Slots are taken from the low end, so that behind one that never was in use there are hardly others; one or two whose
 * neighbour is not begun yet come next time. */
static void copy_pool(void* to, const void* from, size_t slots, size_t size) {
  for (size_t i = 0; i < slots; ++i) {
    const char* const ours = (const char*)from + i * size;
    if (cwp_generation((const uint32_t*)ours) == 0) return;
    copy_slot((char*)to + i * size, ours, size);
  }
}

static void copy_colls(struct cw_prof_shared* to, const struct cw_prof_shared* from) {
  for (size_t i = 0; i < CW_PROF_COLLS; ++i) /* not from a pool: they go round */
    copy_slot(&to->coll[i], &from->coll[i], sizeof(from->coll[i]));
}

/* 1: done with, whether it was copied or is lost. */
static int copy_record(struct cw_prof_record* to, const struct cw_prof_record* from, uint64_t index) {
  const uint64_t complete = 2 * index + 2;
  const uint64_t before = __atomic_load_n(&from->seq, __ATOMIC_ACQUIRE);
  if (__atomic_load_n(&to->seq, __ATOMIC_RELAXED) >= complete) return 1; /* copied before one that was late */
  if (before < complete) return 0;
  __atomic_store_n(&to->seq, complete - 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  copy_words((char*)to + sizeof(uint64_t), (const char*)from + sizeof(uint64_t), sizeof(*to) - sizeof(uint64_t));
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  /* Overwritten meanwhile: a number that no reader waits for. */
  __atomic_store_n(&to->seq, __atomic_load_n(&from->seq, __ATOMIC_RELAXED) == complete ? complete : complete + 1,
                   __ATOMIC_RELEASE);
  return 1;
}

static void copy_ring(struct cw_prof_shared* to, const struct cw_prof_shared* from) {
  const uint64_t head = __atomic_load_n(&from->head, __ATOMIC_ACQUIRE);
  int whole = 1; /* up to here */
  if (head - copied > CW_PROF_RING) copied = head - CW_PROF_RING;
  for (uint64_t i = copied; i < head; ++i) {
    whole &= copy_record(&to->ring[i % CW_PROF_RING], &from->ring[i % CW_PROF_RING], i);
    if (whole) copied = i + 1;
  }
  __atomic_store_n(&to->head, head, __ATOMIC_RELEASE);
}

/* The ring twice: to a reader in between, a collective whose operations are not open any more without a record of their
 * end would be one that had none; one that is open for a little longer is none the worse. */
static void copy_all(struct cw_prof_shared* to, const struct cw_prof_shared* from) {
  copy_ring(to, from);
  copy_pool(to->comm, from->comm, CW_PROF_COMMS, sizeof(from->comm[0]));
  copy_colls(to, from);
  copy_pool(to->op, from->op, CW_PROF_OPS, sizeof(from->op[0]));
  copy_pool(to->step, from->step, CW_PROF_STEPS, sizeof(from->step[0]));
  copy_pool(to->net, from->net, CW_PROF_NETS, sizeof(from->net[0]));
  copy_words(&to->counts, &from->counts, sizeof(from->counts));
  copy_ring(to, from);
}

/* A memory that can be cut would end this process with a signal. */
static struct cw_prof_shared* map(int memory) {
  const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(memory, F_GET_SEALS);
  void* mapped;
  if (seals < 0 || (seals & wanted) != wanted) return NULL;
  if (lseek(memory, 0, SEEK_END) != (off_t)CW_PROF_SIZE) return NULL; /* fstat is newer than the oldest glibc here */
  mapped = mmap(NULL, CW_PROF_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  return mapped == MAP_FAILED ? NULL : mapped;
}

int cwp_open_mirror(int memory) {
  const struct cw_prof_shared* const shared = __atomic_load_n(&cwp_shared, __ATOMIC_ACQUIRE);
  struct cw_prof_shared* const to = shared ? map(memory) : NULL;
  if (!to) return 0;
  to->version = shared->version;
  to->pid = shared->pid;
  to->start_ns = shared->start_ns;
  memcpy(to->label, shared->label, sizeof(to->label));
  memcpy(to->process, shared->process, sizeof(to->process));
  pthread_mutex_lock(&copying);
  copied = 0;
  copy_all(to, shared);
  __atomic_store_n(&to->magic, shared->magic, __ATOMIC_RELEASE);
  mirror = to;
  pthread_mutex_unlock(&copying);
  return 1;
}

int cwp_has_mirror(void) { return __atomic_load_n(&mirror, __ATOMIC_ACQUIRE) != NULL; }

void cwp_mirror(void) {
  const struct cw_prof_shared* const shared = __atomic_load_n(&cwp_shared, __ATOMIC_ACQUIRE);
  pthread_mutex_lock(&copying);
  if (mirror && shared) copy_all(mirror, shared);
  pthread_mutex_unlock(&copying);
}

void cwp_close_mirror(void) {
  pthread_mutex_lock(&copying);
  if (mirror) munmap(mirror, CW_PROF_SIZE);
  mirror = NULL;
  pthread_mutex_unlock(&copying);
}

/* The parent's thread may have held the lock. */
void cwp_forget_mirror(void) {
  pthread_mutex_init(&copying, NULL);
  if (mirror) munmap(mirror, CW_PROF_SIZE);
  mirror = NULL;
}
