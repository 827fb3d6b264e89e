/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_symbols LIBRARY: looks functions up in it as NCCL does, by name and version, beside libibverbs itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct {
  const char *name, *version;
} asked[] = {
    {"ibv_get_device_list", "IBVERBS_1.1"},   {"ibv_free_device_list", "IBVERBS_1.1"},
    {"ibv_get_device_name", "IBVERBS_1.1"},   {"ibv_open_device", "IBVERBS_1.1"},
    {"ibv_close_device", "IBVERBS_1.1"},      {"ibv_get_async_event", "IBVERBS_1.1"},
    {"ibv_ack_async_event", "IBVERBS_1.1"},   {"ibv_query_device", "IBVERBS_1.1"},
    {"ibv_query_port", "IBVERBS_1.1"},        {"ibv_query_gid", "IBVERBS_1.1"},
    {"ibv_query_qp", "IBVERBS_1.1"},          {"ibv_alloc_pd", "IBVERBS_1.1"},
    {"ibv_dealloc_pd", "IBVERBS_1.1"},        {"ibv_reg_mr", "IBVERBS_1.1"},
    {"ibv_reg_mr_iova2", "IBVERBS_1.8"},      {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
    {"ibv_dereg_mr", "IBVERBS_1.1"},          {"ibv_create_cq", "IBVERBS_1.1"},
    {"ibv_destroy_cq", "IBVERBS_1.1"},        {"ibv_create_qp", "IBVERBS_1.1"},
    {"ibv_modify_qp", "IBVERBS_1.1"},         {"ibv_destroy_qp", "IBVERBS_1.1"},
    {"ibv_fork_init", "IBVERBS_1.1"},         {"ibv_event_type_str", "IBVERBS_1.1"},
    {"ibv_query_ece", "IBVERBS_1.10"},        {"ibv_set_ece", "IBVERBS_1.10"},
    {"ibv_query_port_speed", "IBVERBS_1.16"},
};

int main(int argc, char** argv) {
  void* real = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  void* library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : 0;
  int bad = 0, ours = 0;
  if (!library || !real) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  for (unsigned i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
    void* behind = dlvsym(real, asked[i].name, asked[i].version);
    void* found = dlvsym(library, asked[i].name, asked[i].version);
    Dl_info where;
    if (!behind != !found) printf("%s %s differs\n", asked[i].name, asked[i].version), bad++;
    if (found && dladdr(found, &where) && strstr(where.dli_fname, "cwverbs")) ours++;
  }
  printf("%d\n", ours);
  return bad != 0;
}
