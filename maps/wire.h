/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* The probe's wire format: Ethernet, IPv4, UDP (destination 4791, source port = the entropy under test), BTH with
 * opcode CW_BTH_OPCODE and destination QPN CW_BTH_QPN, then this header (all integers big-endian), for messages a body
 * and its MAC, and the ICRC. Requests and messages carry a valid ICRC, replies an unspecified one. Between MAC and ICRC
 * a message may have bytes that mean nothing: they make it as long as a packet of data.
 *
 * mac: SipHash-2-4 of the 72 bytes before it (as nine little-endian words, as the reference does), under the key of the
 * ordered pair of addresses (maps/abi.h, cw_pair_keys), stored as a little-endian word. J.-P. Aumasson, D. J.
 * Bernstein: SipHash, 2012. */
#ifndef CW_MAPS_WIRE_H
#define CW_MAPS_WIRE_H

#include <linux/types.h>

#define CW_ROCE_PORT 4791
#define CW_BTH_OPCODE 0xE7 /* manufacturer-specific range 0xE0-0xFF */
#define CW_BTH_QPN                                                                                                   \
  0x00CF0B /* owned by no one: below 0x10000 and odd numbers this high are not handed out by drivers we know; magic, \
              length and MAC decide */
/* Traces that ask whether switches hash on the QPN go to one of the QPNs with these upper bits. No queue pair takes
 * them: the opcode belongs to no transport service, so whoever owns the QPN drops the packet unseen (IBTA vol. 1, 9.6,
 * packet header validation), and their TTL ends on the way. The two upper bits are 0: they mark packets that NIC
 * failover carries. */
#define CW_TEST_QPN_SHIFT 18
#define CW_TEST_QPN_TOP 0xF
#define CW_PROBE_MAGIC 0x43574650u /* "CWFP" */
#define CW_PROBE_VERSION 1

enum cw_probe_type {
  CW_PROBE_REQUEST = 1, /* turned round by the peer's XDP program */
  CW_PROBE_REPLY = 2,
  CW_PROBE_MESSAGE = 3, /* to the peer's agent: samples, clock data */
  CW_PROBE_TRACE = 4,   /* path discovery: sent with a small TTL, never answered */
};

/* How the request arrived (RFC 3168): a responder that says nothing is of before, or the fabric took the ECN bits away.
 */
enum cw_probe_flags {
  CW_PROBE_CE = 1,  /* marked */
  CW_PROBE_ECT = 2, /* marked, or fit to be */
};

struct cw_probe_hdr {
  __be32 magic;
  __u8 version;
  __u8 type;      /* enum cw_probe_type */
  __u8 slot;      /* requester's slot */
  __u8 rslot;     /* reply: responder's slot that the reply takes, 0xff = the request's own port */
  __be32 session; /* requester's; message: sender's */
  __be32 round;   /* message: sequence number */
  __be16 cookie;  /* requester's pair index, echoed */
  __u8 key_id;
  __u8 flags;               /* reply: enum cw_probe_flags; otherwise 0 */
  __be32 responder_session; /* reply; message: the receiver's as the sender last heard it, 0: not yet */
  __be64 t1;                /* 0; transports that stamp in userspace may use it. message: bytes of body */
  __be64 t2;                /* reply: arrival of the request, responder's clock */
  __be64 t3;                /* reply: departure of the reply */
  __be16
      bitmap[8]; /* reply: [i] = slots whose request of round - i arrived. request: [0] = slots probed in its round */
  __be64
      t2_nic; /* reply: arrival of the request as the responder's NIC stamped it, responder's clock; 0 = it did not */
  __u8 mac[8];
} __attribute__((packed));

#define CW_PROBE_HDR_LEN 80
#define CW_PROBE_MAC_OFFSET 72
#define CW_BTH_LEN 12
#define CW_ICRC_LEN 4
#define CW_MSG_MAC_LEN 8 /* behind the body, SipHash-2-4 of header and body, zero-padded to 8 bytes */
/* A peer whose NIC keeps UDP 4791 from its kernel has UD queue pairs only. It gets the probe as a UD SEND (IBTA vol. 1,
 * 9.4.3 and 9.6.1.5), header, body and MAC unchanged behind a DETH: Q_Key, and the sender's QPN in the low 24 bits. To
 * and from a kernel's end that QPN is CW_BTH_QPN. */
#define CW_UD_OPCODE 0x64
#define CW_UD_QKEY 0x43574650u /* the upper bit would make it the kernel's to give */
#define CW_DETH_LEN 8
/* What XDP hands to the agent gets this EtherType on the way (IEEE 802-2014, 9.2.4: local experimental 2), so that
 * nobody else on the host takes it. */
#define CW_ETH_UD_PROBE 0x88B6
/* UDP length of requests, replies and traces. */
#define CW_PROBE_UDP_LEN (8 + CW_BTH_LEN + CW_PROBE_HDR_LEN + CW_ICRC_LEN)

#ifdef __cplusplus
static_assert(sizeof(struct cw_probe_hdr) == CW_PROBE_HDR_LEN, "wire size");
#else
_Static_assert(sizeof(struct cw_probe_hdr) == CW_PROBE_HDR_LEN, "wire size");
#endif

#endif
