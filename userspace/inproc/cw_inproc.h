/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the agent and libraries or programs that own queue pairs (libcwverbs, the lab's emulator).
 *
 * Transport: unix socket, SOCK_SEQPACKET, at CW_INPROC_SOCKET_FMT with the agent's instance; one message a packet, no reply.
 * The sender may be killed or the agent may be gone at any time: both sides treat a closed socket as "nothing registered".
 * When a connection closes, the agent forgets the queue pairs that were registered over it.
 * All integers are in host byte order (both ends are on one machine). libc only: this header is used in foreign processes.
 * Thread rule: a message is one send(); any thread may send. */
#ifndef CW_INPROC_H
#define CW_INPROC_H
#include <stdint.h>

#define CW_INPROC_SOCKET_FMT "/run/cwfabric/%s/inproc.sock"
#define CW_INPROC_MAGIC 0x43574950u /* "CWIP" */
#define CW_INPROC_VERSION 1
#define CW_LABEL_LEN 32

enum cw_inproc_type {
  CW_INPROC_REGISTER_QP = 1,   /* a queue pair reached RTR/RTS */
  CW_INPROC_UNREGISTER_QP = 2, /* it was destroyed or reset */
};

struct cw_inproc_register_qp {
  uint32_t magic;   /* CW_INPROC_MAGIC */
  uint16_t version; /* CW_INPROC_VERSION */
  uint16_t type;    /* enum cw_inproc_type */
  uint32_t lqpn;    /* local QPN, 24 bit */
  uint32_t rqpn;    /* remote QPN, 24 bit */
  uint8_t laddr[16]; /* network order; IPv4 as ::ffff:a.b.c.d, as in a GID */
  uint8_t raddr[16];
  uint32_t pid;      /* owner */
  uint16_t udp_sport; /* source port that the provider chose, 0 = unknown */
  uint16_t path_mtu;  /* bytes, 0 = unknown */
  char comm[16];      /* owner's name, NUL-terminated */
  char label[CW_LABEL_LEN]; /* job or collective, NUL-terminated, may be empty */
};

#endif
