/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a device's own provider library that change the path of a connected queue pair. They are looked up in the
 * library that the context's functions come from, which is loaded: never another one, never a second one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "userspace/inproc/verbs/internal.h"
#include "userspace/inproc/verbs/old_glibc.h"

CWV_OLD_SYMBOL(dladdr);
CWV_OLD_SYMBOL(dlclose);
CWV_OLD_SYMBOL(dlopen);
CWV_OLD_SYMBOL(dlsym);
CWV_OLD_SYMBOL(dlvsym);

static void* loaded_library_of(const void* function) {
  Dl_info info;
  if (!function || !dladdr(function, &info) || !info.dli_fname) return 0;
  return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD); /* NULL for what is linked into the program itself */
}

struct cwv_provider cwv_provider_of(const void* function) {
  struct cwv_provider found;
  void* library = loaded_library_of(function);
  memset(&found, 0, sizeof(found));
  if (!library) return found;
  /* rdma-core, providers/mlx5/libmlx5.map: lag ports since v27, UDP source port since v33. Both are firmware commands
   * of RTS2RTS_QP, for queue pairs in RTS only; they return an errno. */
  found.set_port = (int (*)(struct ibv_qp*, uint16_t))dlvsym(library, "mlx5dv_modify_qp_udp_sport", "MLX5_1.17");
  found.set_lag = (int (*)(struct ibv_qp*, uint8_t))dlvsym(library, "mlx5dv_modify_qp_lag_port", "MLX5_1.14");
  found.query_lag =
      (int (*)(struct ibv_qp*, uint8_t*, uint8_t*))dlvsym(library, "mlx5dv_query_qp_lag_port", "MLX5_1.14");
  /* Not in rdma-core: Broadcom's own libbnxt_re, after RTS, ports 49152-65535. */
  if (!found.set_port)
    found.set_port = (int (*)(struct ibv_qp*, uint16_t))dlsym(library, "bnxt_re_dv_modify_qp_udp_sport");
  if (!found.set_lag || !found.query_lag) found.set_lag = 0, found.query_lag = 0;
  dlclose(library); /* it stays, as long as its contexts do */
  return found;
}
