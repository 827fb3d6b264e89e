/* SPDX-License-Identifier: Apache-2.0 */
/* Where the functions that we stand in front of are. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "userspace/inproc/verbs/internal.h"
#include "userspace/inproc/verbs/old_glibc.h"

CWV_OLD_SYMBOL(dlopen);
CWV_OLD_SYMBOL(dlvsym);

static void* of_library(const char* name) {
  /* It is loaded: somebody calls us in its place, or we depend on it. Never load a second one. */
  void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library ? dlvsym(library, name, "IBVERBS_1.1") : 0;
}

#ifdef CWV_BY_NAME
/* Opened by name, perhaps into a scope of its own, where "the next one" need not exist. */
void* cwv_real(const char* name) { return of_library(name); }
#else
/* Preloaded: others may stand between us and the library, and keep their turn. */
void* cwv_real(const char* name) {
  void* next = dlvsym(RTLD_NEXT, name, "IBVERBS_1.1");
  return next ? next : of_library(name);
}
#endif
