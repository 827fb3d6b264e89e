/* SPDX-License-Identifier: Apache-2.0 */
#include "userspace/inproc/verbs/internal.h"

uint16_t cwv_port_of_label(uint32_t label) {
  return (uint16_t)(0xc000u | ((label & 0x3fffu) ^ ((label >> 14) & 0x3fu)));
}

uint32_t cwv_label_of_port(uint16_t port) {
  const uint32_t low = port & 0x3fffu;
  return low ? low : 1u << 14 | 1u; /* label 0 means "none" */
}

uint32_t cwv_native_label(uint32_t lqpn, uint32_t rqpn) {
  uint64_t v = (uint64_t)lqpn * rqpn;
  v ^= v >> 20;
  v ^= v >> 40;
  return (uint32_t)(v & 0xfffffu);
}
