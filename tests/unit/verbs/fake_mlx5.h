/* SPDX-License-Identifier: Apache-2.0 */
/* A provider's library with the name, the calls and the symbol versions of libmlx5, and no device behind it. It is
 * taken for the provider of the contexts of fake_ibverbs.c where FAKE_PROVIDER names its file. Its environment:
 * FAKE_MLX5_US: how long a change takes; FAKE_MLX5_ERRNO: what a change of the port ends with; FAKE_MLX5_PORTS: ports
 * of the bond that the device is, none without it; FAKE_MLX5_LOG: a file that is made, in which all of it can be read.
 */
#ifndef CW_FAKE_MLX5_H
#define CW_FAKE_MLX5_H
#include <stdint.h>
#ifdef __cplusplus
#include <atomic>
#define FAKE_ATOMIC(type) std::atomic<type>
#else
#include <stdatomic.h>
#define FAKE_ATOMIC(type) _Atomic(type)
#endif

#define FAKE_MLX5_QPNS 4096

struct fake_mlx5_log {
  FAKE_ATOMIC(uint64_t) changes; /* of ports, done */
  FAKE_ATOMIC(uint64_t) refused;
  FAKE_ATOMIC(uint64_t) lag_changes, lag_questions;
  FAKE_ATOMIC(uint32_t) inside;      /* calls under way … */
  FAKE_ATOMIC(uint32_t) most_inside; /* … and at most */
  FAKE_ATOMIC(uint64_t) spent_ns;    /* in changes of ports that were done */
  FAKE_ATOMIC(int64_t) last_ns;      /* monotonic; when the last change ended */
  FAKE_ATOMIC(uint16_t) port[FAKE_MLX5_QPNS];
  FAKE_ATOMIC(uint8_t) lag[FAKE_MLX5_QPNS];
};
#endif
