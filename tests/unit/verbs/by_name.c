/* SPDX-License-Identifier: Apache-2.0 */
/* by_name LIBRARY: connects a queue pair as NCCL does, with functions looked up in LIBRARY by name and version. Not
 * linked with any libibverbs. Prints the label that the provider was given. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/verbs/fake_ibverbs.h"

int main(int argc, char** argv) {
  static const uint8_t remote[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 10};
  void* library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : 0;
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
#define FIND(result, name, ...) result (*name)(__VA_ARGS__) = dlvsym(library, "ibv_" #name, "IBVERBS_1.1")
  FIND(struct ibv_context*, open_device, struct ibv_device*);
  FIND(struct ibv_pd*, alloc_pd, struct ibv_context*);
  FIND(struct ibv_qp*, create_qp, struct ibv_pd*, struct ibv_qp_init_attr*);
  FIND(int, modify_qp, struct ibv_qp*, struct ibv_qp_attr*, int);
  FIND(int, destroy_qp, struct ibv_qp*);
  FIND(int, close_device, struct ibv_context*);
  uint32_t (*label)(const struct ibv_qp*) = dlsym(library, "fake_label");
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .dest_qp_num = 0x77, .path_mtu = IBV_MTU_4096};
  struct ibv_sge sge = {.length = 64};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1};
  struct ibv_send_wr* bad;
  struct ibv_context* context;
  struct ibv_qp* qp;
  int error;
  attr.ah_attr.is_global = 1;
  memcpy(attr.ah_attr.grh.dgid.raw, remote, 16);
  context = open_device(0);
  qp = create_qp(alloc_pd(context), &init);
  error = modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU);
  printf("%x\n", label(qp));
  for (int i = 0; i < 5; i++) error |= ibv_post_send(qp, &wr, &bad);
  return error | destroy_qp(qp) | close_device(context);
}
