/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the agent and libraries or programs that own queue pairs (libcwverbs, the lab's emulator).
 *
 * Transport: unix socket, SOCK_SEQPACKET, at CW_INPROC_SOCKET_FMT with the agent's instance, or at
 * $CWFABRIC_INPROC_SOCKET; one message a packet. The agent answers CW_INPROC_PLACE_QP only; what it orders
 * (CW_INPROC_MOVE_QPS) the owner answers.
 *
 * A message of another version, an unknown type or another length is counted by the agent and passed over by owners: a
 * new kind of message is a new type, and neither end needs the other's release.
 *
 * The sender may be killed or the agent may be gone at any time: both sides treat a closed socket as "nothing
 * registered". When a connection closes, the agent forgets the queue pairs that were registered over it.
 *
 * All integers are in host byte order (both ends are on one machine). libc only: this header is used in foreign
 * processes. Thread rule: a message is one send(); any thread may send. */
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
  CW_INPROC_PLACE_QP = 3,      /* it is about to: which path? Registers it, too */
  CW_INPROC_PLACEMENT = 4,     /* the agent's answer */
  CW_INPROC_QP_SUMS = 5,       /* what it has done so far; at most once per second */
  CW_INPROC_QP_CAN = 6,        /* what can be done with it while it is connected; after REGISTER, and when it changes */
  CW_INPROC_MOVE_QPS = 7,      /* the agent orders moves; only of queue pairs that can be moved by their QP_CAN */
  CW_INPROC_QP_MOVED = 8,      /* the answer to one order */
  CW_INPROC_PROFILER = 32,     /* from here on: nccl/cw_profiler.h */
};

/* Every message begins so. */
struct cw_inproc_head {
  uint32_t magic;   /* CW_INPROC_MAGIC */
  uint16_t version; /* CW_INPROC_VERSION */
  uint16_t type;    /* enum cw_inproc_type */
};

/* Why a queue pair gets no label. The owner goes on with what its provider chooses, whatever the reason. */
enum cw_inproc_verdict {
  CW_INPROC_PLACED = 0,
  CW_INPROC_NOT_ACTING = 1, /* mode observe or off */
  CW_INPROC_NO_PATHS = 2,   /* no peer's address, paths not known, or ports do not choose them */
  CW_INPROC_NOT_YOURS = 3,  /* RDMA netlink does not say that the queue pair is the asking process's */
  CW_INPROC_OVER_QUOTA = 4, /* too many queue pairs or messages of this process */
  CW_INPROC_BY_KERNEL = 5,  /* the agent's program sees the NIC's packets and puts new flows on paths itself */
};

struct cw_inproc_register_qp {
  uint32_t magic;    /* CW_INPROC_MAGIC */
  uint16_t version;  /* CW_INPROC_VERSION */
  uint16_t type;     /* enum cw_inproc_type */
  uint32_t lqpn;     /* local QPN, 24 bit */
  uint32_t rqpn;     /* remote QPN, 24 bit */
  uint8_t laddr[16]; /* network order; IPv4 as ::ffff:a.b.c.d, as in a GID */
  uint8_t raddr[16];
  uint32_t pid;             /* owner, as it knows itself: the agent goes by the socket's credentials */
  uint16_t udp_sport;       /* source port that the provider chose, 0 = unknown */
  uint16_t path_mtu;        /* bytes, 0 = unknown */
  char comm[16];            /* owner's name, NUL-terminated */
  char label[CW_LABEL_LEN]; /* job or collective, NUL-terminated, may be empty */
};

struct cw_inproc_place_qp {
  struct cw_inproc_register_qp qp; /* type CW_INPROC_PLACE_QP; udp_sport: the port if it gets no label */
  uint32_t request;                /* the answer repeats it */
  uint32_t zero;
};

struct cw_inproc_placement {
  uint32_t magic;
  uint16_t version;
  uint16_t type;
  uint32_t request;
  uint32_t flow_label; /* for ah_attr.grh.flow_label, 1 to 0xfffff; 0: none */
  uint16_t udp_sport;  /* that the label gives */
  uint8_t slot;        /* path that it takes, for people */
  uint8_t verdict;     /* enum cw_inproc_verdict */
  uint32_t lqpn;
};

/* Sums since the queue pair was made. Completion times: from posting a signaled send request to polling its completion,
 * of one request in 64 at most. */
struct cw_inproc_qp_sums {
  uint32_t magic;
  uint16_t version;
  uint16_t type;
  uint32_t lqpn;
  uint32_t zero;
  uint8_t laddr[16];
  uint64_t messages; /* send requests posted */
  uint64_t bytes;    /* of them */
  uint64_t errors;   /* completions with an error, of sends and receives */
  uint64_t completion_samples;
  uint64_t completion_p50_ns; /* of all samples, within 1/8; 0: none */
  uint64_t completion_max_ns;
};

enum cw_inproc_can {
  CW_INPROC_CAN_MOVE_PORT = 1 << 0, /* its provider has a call that changes the UDP source port of a connected one */
  CW_INPROC_CAN_MOVE_LAG = 1 << 1, /* its device is a bond, and the port of the bond that it leaves by can be changed */
  CW_INPROC_OWN_LABEL = 1 << 2,    /* its application chose its port: it is not moved */
  CW_INPROC_OWN_FAILOVER = 1 << 3, /* something else in its process moves it (NCCL's port failover): it is not moved */
};

struct cw_inproc_qp_can {
  uint32_t magic;
  uint16_t version;
  uint16_t type;
  uint32_t lqpn;
  uint32_t can; /* enum cw_inproc_can */
  uint8_t laddr[16];
  uint8_t lag_active; /* port of the bond that it leaves by, from 1; 0: no bond, or not known */
  uint8_t lag_wanted; /* that it was given; 0: none */
  uint16_t refused;   /* errno by which the device took CAN_MOVE_PORT back, 0: it did not */
  uint32_t zero;
};

#define CW_INPROC_FIRST_PORT 0xc000u /* of those that queue pairs are moved to: what every provider takes */
#define CW_INPROC_MOST_MOVES 16

struct cw_inproc_move {
  uint8_t laddr[16];
  uint32_t lqpn;
  uint32_t request;   /* the answer repeats it; a later order for the same queue pair replaces one that waits */
  uint16_t udp_sport; /* from CW_INPROC_FIRST_PORT; 0: as it is */
  uint8_t lag_port;   /* from 1; 0: as it is */
  uint8_t zero;
  uint32_t zero2;
};

struct cw_inproc_move_qps {
  uint32_t magic;
  uint16_t version;
  uint16_t type;
  uint32_t count; /* of `move` that are used; the message always has its full length */
  uint32_t zero;
  struct cw_inproc_move move[CW_INPROC_MOST_MOVES];
};

struct cw_inproc_qp_moved {
  uint32_t magic;
  uint16_t version;
  uint16_t type;
  uint32_t lqpn;
  uint32_t request;
  uint8_t laddr[16];
  uint16_t udp_sport; /* in force now */
  uint8_t lag_active; /* as in cw_inproc_qp_can */
  uint8_t lag_wanted;
  uint32_t error; /* errno; 0: done */
};

#endif
