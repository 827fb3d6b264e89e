/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL tells, into the shared memory. The steps of an operation and their requests come from one thread, NCCL's
 * proxy; operations of one collective from several. */
#include <string.h>

#include "userspace/inproc/nccl/internal.h"

static void copy(char* to, size_t size, const char* from) {
  memset(to, 0, size);
  if (from) strncpy(to, from, size - 1);
}

static struct cw_prof_shared* memory(void) { return __atomic_load_n(&cwp_shared, __ATOMIC_ACQUIRE); }

/* Slots by handle; null and counted where the handle names nothing (any more). */
#define FIND(name, type, pool, size, of_kind)                                                                          \
  static struct type* find_##name(struct cw_prof_shared* shared, uint64_t handle) {                                    \
    const uint32_t index = cw_prof_handle_index(handle);                                                               \
    if (cw_prof_handle_kind(handle) == (of_kind) && index < (size) && cwp_is(&shared->pool[index].generation, handle)) \
      return &shared->pool[index];                                                                                     \
    cwp_count(&shared->counts.stale);                                                                                  \
    return NULL;                                                                                                       \
  }
FIND(coll, cw_prof_coll, coll, CW_PROF_COLLS, CW_PROF_COLL)
FIND(op, cw_prof_op, op, CW_PROF_OPS, CW_PROF_OP)
FIND(step, cw_prof_step, step, CW_PROF_STEPS, CW_PROF_STEP)
#undef FIND

uint64_t cwp_comm_start(int version, uint64_t id, const char* name, int nodes, int ranks, int rank) {
  struct cw_prof_shared* shared = memory();
  struct cw_prof_record* record;
  struct cw_prof_comm* comm;
  const int64_t index = cwp_take(CWP_POOL_COMM);
  uint64_t handle;
  if (index < 0) {
    cwp_count(&shared->counts.no_comm);
    return 0;
  }
  comm = &shared->comm[index];
  comm->profiler = (uint32_t)version;
  comm->id = id;
  comm->ranks = ranks;
  comm->rank = rank;
  comm->nodes = nodes;
  comm->start_ns = cwp_now_ns();
  copy(comm->name, sizeof(comm->name), name);
  handle = cw_prof_handle(CW_PROF_COMM, cwp_live(&comm->generation), (uint32_t)index);
  record = cwp_ring_begin(shared, CW_PROF_COMM_START, handle, comm->start_ns);
  record->u.comm.id = id;
  record->u.comm.ranks = ranks;
  record->u.comm.rank = rank;
  record->u.comm.nodes = nodes;
  record->u.comm.profiler = (uint32_t)version;
  copy(record->u.comm.name, sizeof(record->u.comm.name), name);
  cwp_ring_end(record);
  return handle;
}

void cwp_comm_end(uint64_t handle) {
  struct cw_prof_shared* shared = memory();
  const uint32_t index = cw_prof_handle_index(handle);
  if (!shared || cw_prof_handle_kind(handle) != CW_PROF_COMM || index >= CW_PROF_COMMS) return;
  if (!cwp_end(&shared->comm[index].generation, handle)) return;
  cwp_ring_end(cwp_ring_begin(shared, CW_PROF_COMM_END, handle, cwp_now_ns()));
  cwp_give(CWP_POOL_COMM, index);
}

/* Slots of collectives are taken in turn: children may come after the stop, so each stays for as long as it can. */
static struct cw_prof_coll* take_coll(struct cw_prof_shared* shared, uint32_t* index) {
  static uint32_t turn;
  for (int tries = 0; tries < 16; ++tries) {
    struct cw_prof_coll* coll;
    uint32_t generation;
    *index = __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED) % CW_PROF_COLLS;
    coll = &shared->coll[*index];
    generation = cwp_generation(&coll->generation);
    if ((generation & 1) && __atomic_load_n(&coll->open, __ATOMIC_ACQUIRE) > 0) continue;
    if (generation != 0 && !(generation & 1)) continue; /* another thread fills it */
    if (__atomic_compare_exchange_n(&coll->generation, &generation, generation == 0 ? 2 : generation + 1, 0,
                                    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return coll;
  }
  return NULL;
}

static uint64_t start_coll(struct cw_prof_shared* shared, uint64_t comm, int p2p, const struct cw_nccl_event* event) {
  struct cw_prof_record* record;
  struct cw_prof_coll* coll;
  uint64_t handle;
  uint32_t index;
  coll = take_coll(shared, &index);
  if (!coll) {
    cwp_count(&shared->counts.no_coll);
    return 0;
  }
  coll->comm = comm;
  coll->start_ns = cwp_now_ns();
  __atomic_store_n(&coll->open, 0, __ATOMIC_RELAXED);
  handle = cw_prof_handle(CW_PROF_COLL, cwp_live(&coll->generation), index);
  record = cwp_ring_begin(shared, CW_PROF_COLL_START, handle, coll->start_ns);
  record->is_p2p = (uint8_t)p2p;
  record->u.coll.comm = comm;
  if (p2p) {
    record->u.coll.seq = 0;
    record->u.coll.count = event->u.p2p.count;
    record->u.coll.root = event->u.p2p.peer;
    record->u.coll.channels = event->u.p2p.channels;
    copy(record->u.coll.function, sizeof(record->u.coll.function), event->u.p2p.function);
    copy(record->u.coll.datatype, sizeof(record->u.coll.datatype), event->u.p2p.datatype);
    copy(record->u.coll.algorithm, sizeof(record->u.coll.algorithm), NULL);
    copy(record->u.coll.protocol, sizeof(record->u.coll.protocol), NULL);
  } else {
    record->u.coll.seq = event->u.coll.seq;
    record->u.coll.count = event->u.coll.count;
    record->u.coll.root = event->u.coll.root;
    record->u.coll.channels = event->u.coll.channels;
    copy(record->u.coll.function, sizeof(record->u.coll.function), event->u.coll.function);
    copy(record->u.coll.datatype, sizeof(record->u.coll.datatype), event->u.coll.datatype);
    copy(record->u.coll.algorithm, sizeof(record->u.coll.algorithm), event->u.coll.algorithm);
    copy(record->u.coll.protocol, sizeof(record->u.coll.protocol), event->u.coll.protocol);
  }
  cwp_ring_end(record);
  return handle;
}

/* Null when the slot went to another collective meanwhile. */
static struct cw_prof_coll* open_child(struct cw_prof_shared* shared, uint64_t handle) {
  struct cw_prof_coll* coll = find_coll(shared, handle);
  if (!coll) return NULL;
  __atomic_fetch_add(&coll->open, 1, __ATOMIC_ACQ_REL);
  if (cwp_is(&coll->generation, handle)) return coll;
  __atomic_fetch_sub(&coll->open, 1, __ATOMIC_ACQ_REL);
  return NULL;
}

static uint64_t start_op(struct cw_prof_shared* shared, uint64_t comm, uint64_t parent,
                         const struct cw_nccl_event* event) {
  struct cw_prof_op* op;
  int64_t index;
  /* Another process' handle is a number for the agent, which knows that process, too. */
  if (event->u.op.pid != cwp_pid) {
    cwp_count(&shared->counts.foreign);
  } else if (!parent) {
    cwp_count(&shared->counts.orphan);
  } else if (!find_coll(shared, parent)) {
    parent = 0;
  }
  index = cwp_take(CWP_POOL_OP);
  if (index < 0) {
    cwp_count(&shared->counts.no_op);
    return 0;
  }
  if (event->u.op.pid == cwp_pid && parent && !open_child(shared, parent)) parent = 0;
  op = &shared->op[index];
  memset((char*)op + sizeof(op->generation), 0, offsetof(struct cw_prof_op, qp) - sizeof(op->generation));
  op->peer = event->u.op.peer;
  op->coll = parent;
  op->comm = comm;
  op->start_ns = op->progress_ns = cwp_now_ns();
  op->pid = event->u.op.pid;
  op->steps = (uint32_t)event->u.op.steps;
  op->channel = event->u.op.channel;
  op->is_send = event->u.op.is_send != 0;
  cwp_chunks_begin(shared, (uint32_t)index);
  return cw_prof_handle(CW_PROF_OP, cwp_live(&op->generation), (uint32_t)index);
}

static uint64_t start_step(struct cw_prof_shared* shared, uint64_t parent, const struct cw_nccl_event* event) {
  struct cw_prof_step* step;
  int64_t index;
  if (!parent) {
    cwp_count(&shared->counts.orphan);
    return 0;
  }
  if (!find_op(shared, parent)) return 0;
  index = cwp_take(CWP_POOL_STEP);
  if (index < 0) {
    cwp_count(&shared->counts.no_step);
    return 0;
  }
  step = &shared->step[index];
  step->wait = CW_WAIT_NONE;
  step->op = parent;
  step->since_ns = cwp_now_ns();
  step->bytes = 0;
  step->step = (uint32_t)event->u.step.step;
  return cw_prof_handle(CW_PROF_STEP, cwp_live(&step->generation), (uint32_t)index);
}

/* Its place in the operation; CW_PROF_OP_QPS: there is none left. */
static uint32_t find_qp(const struct cw_prof_op* op, uint32_t qpn, int32_t device) {
  uint32_t i = 0;
  while (i < op->qps && i < CW_PROF_OP_QPS && (op->qp[i].qpn != qpn || op->qp[i].device != device)) ++i;
  return i < CW_PROF_OP_QPS ? i : CW_PROF_OP_QPS;
}

/* The chunk's number on its queue pair. */
static uint32_t count_chunk(struct cw_prof_op* op, uint32_t op_index, uint32_t qpn, int32_t device) {
  const uint32_t i = find_qp(op, qpn, device);
  if (i == CW_PROF_OP_QPS) return CW_PROF_MOST_CHUNKS;
  if (i == op->qps) {
    memset(&op->qp[i], 0, sizeof(op->qp[i]));
    op->qp[i].qpn = qpn;
    op->qp[i].device = device;
    op->qps = (uint8_t)(i + 1);
  }
  return cwp_chunk_post(op_index, i);
}

static uint64_t start_net(struct cw_prof_shared* shared, uint64_t parent, const struct cw_nccl_event* event) {
  const struct cw_nccl_net_ib* ib = event->u.net.data;
  struct cw_prof_step* step;
  struct cw_prof_net* net;
  struct cw_prof_op* op;
  uint32_t qpn, number;
  int64_t index;
  if (event->u.net.id != CW_NCCL_NET_IB_1 || !ib || ib->type != 1) return 0;
  cwp_count(&shared->counts.net);
  if (!parent) {
    cwp_count(&shared->counts.orphan);
    return 0;
  }
  step = find_step(shared, parent);
  op = step ? find_op(shared, step->op) : NULL;
  if (!op) return 0;
  qpn = (uint32_t)ib->qpn & 0xffffff;
  number = count_chunk(op, cw_prof_handle_index(step->op), qpn, ib->device);
  index = cwp_take(CWP_POOL_NET);
  if (index < 0) {
    cwp_count(&shared->counts.no_net);
    return 0;
  }
  net = &shared->net[index];
  net->qpn = qpn;
  net->number = number;
  net->op = step->op;
  net->start_ns = cwp_now_ns();
  net->device = ib->device;
  net->bytes = ib->length; /* NCCL's memory is only ours during this call */
  if (op->is_send)
    cwp_chunk_stamp(cw_prof_handle_index(step->op), find_qp(op, qpn, net->device), number, net->start_ns);
  return cw_prof_handle(CW_PROF_NET, cwp_live(&net->generation), (uint32_t)index);
}

/* A channel of the kernel keeps its collective open and has nothing else to tell. */
static uint64_t start_kernel(struct cw_prof_shared* shared, uint64_t parent) {
  if (!parent || !open_child(shared, parent)) return 0;
  return cw_prof_handle(CW_PROF_KERNEL, cw_prof_handle_generation(parent), cw_prof_handle_index(parent));
}

uint64_t cwp_event_start(uint64_t comm, uint32_t type, uint64_t parent, const struct cw_nccl_event* event) {
  struct cw_prof_shared* shared = memory();
  if (!shared) return 0;
  switch (type) {
    case CW_NCCL_COLL:
    case CW_NCCL_P2P:
      return start_coll(shared, comm, type == CW_NCCL_P2P, event);
    case CW_NCCL_PROXY_OP:
      return start_op(shared, comm, parent, event);
    case CW_NCCL_PROXY_STEP:
      return start_step(shared, parent, event);
    case CW_NCCL_NET_PLUGIN:
      return start_net(shared, parent, event);
    case CW_NCCL_KERNEL_CH:
      return start_kernel(shared, parent);
    default:
      return 0; /* ancestors of what is wanted come, too */
  }
}

static void close_child(struct cw_prof_shared* shared, uint64_t handle) {
  struct cw_prof_coll* coll = find_coll(shared, handle);
  if (coll && __atomic_load_n(&coll->open, __ATOMIC_ACQUIRE) > 0) __atomic_fetch_sub(&coll->open, 1, __ATOMIC_ACQ_REL);
}

static void put_qps(struct cw_prof_shared* shared, uint64_t handle, const struct cw_prof_op* op, uint64_t now_ns) {
  for (int i = 0; i < op->qps && i < CW_PROF_OP_QPS; ++i) {
    struct cw_prof_record* record = cwp_ring_begin(shared, CW_PROF_QP, op->coll, now_ns);
    record->pid = op->pid;
    record->channel = op->channel;
    record->is_send = op->is_send;
    record->u.qp.op = handle;
    record->u.qp.qp = op->qp[i];
    cwp_ring_end(record);
  }
}

static void stop_op(struct cw_prof_shared* shared, uint64_t handle) {
  struct cw_prof_op* op = find_op(shared, handle);
  const uint64_t now_ns = cwp_now_ns();
  struct cw_prof_record* record;
  uint64_t coll;
  int own;
  if (!op) return;
  put_qps(shared, handle, op, now_ns);
  cwp_chunks_put(shared, handle, op, now_ns);
  record = cwp_ring_begin(shared, CW_PROF_OP_STOP, op->coll, now_ns);
  record->pid = op->pid;
  record->channel = op->channel;
  record->is_send = op->is_send;
  record->u.op.op = handle;
  record->u.op.start_ns = op->start_ns;
  record->u.op.first_ns = op->first_ns;
  record->u.op.bytes = op->bytes;
  record->u.op.peer = op->peer;
  record->u.op.steps = op->steps_done;
  memcpy(record->u.op.wait_ns, &op->wait_ns[CW_WAIT_SEND_GPU], sizeof(record->u.op.wait_ns));
  record->u.op.comm = op->comm;
  cwp_ring_end(record);
  coll = op->coll;
  own = op->pid == cwp_pid;
  if (!cwp_end(&op->generation, handle)) return;
  cwp_give(CWP_POOL_OP, cw_prof_handle_index(handle));
  if (own && coll) close_child(shared, coll);
}

static void leave_state(struct cw_prof_op* op, struct cw_prof_step* step, uint64_t now_ns) {
  const uint32_t wait = step->wait;
  if (wait != CW_WAIT_NONE && wait < CW_WAIT_STATES) op->wait_ns[wait] += now_ns - step->since_ns;
  step->since_ns = now_ns;
  op->progress_ns = now_ns;
}

static void stop_step(struct cw_prof_shared* shared, uint64_t handle) {
  struct cw_prof_step* step = find_step(shared, handle);
  struct cw_prof_op* op;
  if (!step) return;
  op = find_op(shared, step->op);
  if (op) {
    leave_state(op, step, cwp_now_ns());
    op->bytes += step->bytes;
    ++op->steps_done;
  }
  if (cwp_end(&step->generation, handle)) cwp_give(CWP_POOL_STEP, cw_prof_handle_index(handle));
}

static void stop_net(struct cw_prof_shared* shared, uint64_t handle) {
  const uint32_t index = cw_prof_handle_index(handle);
  struct cw_prof_net* net;
  struct cw_prof_op* op;
  if (index >= CW_PROF_NETS || !cwp_is(&shared->net[index].generation, handle)) {
    cwp_count(&shared->counts.stale);
    return;
  }
  net = &shared->net[index];
  op = find_op(shared, net->op);
  if (op) {
    const uint32_t place = find_qp(op, net->qpn, net->device);
    struct cw_prof_qp* qp = &op->qp[place < CW_PROF_OP_QPS ? place : CW_PROF_OP_QPS - 1];
    const uint64_t now_ns = cwp_now_ns();
    const uint64_t wire_ns = now_ns - net->start_ns;
    ++qp->requests;
    qp->bytes += net->bytes;
    qp->wire_ns += wire_ns;
    if (wire_ns > qp->wire_max_ns) qp->wire_max_ns = wire_ns;
    op->progress_ns = now_ns;
    if (!op->is_send) cwp_chunk_stamp(cw_prof_handle_index(net->op), place, net->number, now_ns);
  }
  if (cwp_end(&net->generation, handle)) cwp_give(CWP_POOL_NET, index);
}

void cwp_event_stop(uint64_t handle) {
  struct cw_prof_shared* shared = memory();
  if (!shared) return;
  switch (cw_prof_handle_kind(handle)) {
    case CW_PROF_COLL:
      if (find_coll(shared, handle)) cwp_ring_end(cwp_ring_begin(shared, CW_PROF_COLL_STOP, handle, cwp_now_ns()));
      return;
    case CW_PROF_OP:
      stop_op(shared, handle);
      return;
    case CW_PROF_STEP:
      stop_step(shared, handle);
      return;
    case CW_PROF_NET:
      stop_net(shared, handle);
      return;
    case CW_PROF_KERNEL: {
      const uint64_t coll =
          cw_prof_handle(CW_PROF_COLL, cw_prof_handle_generation(handle), cw_prof_handle_index(handle));
      close_child(shared, coll);
      cwp_ring_end(cwp_ring_begin(shared, CW_PROF_KERNEL_STOP, coll, cwp_now_ns()));
      return;
    }
    default:
      cwp_count(&shared->counts.stale);
  }
}

static uint32_t wait_of(int state) {
  switch (state) {
    case CW_NCCL_SEND_GPU_WAIT:
      return CW_WAIT_SEND_GPU;
    case CW_NCCL_SEND_PEER_WAIT:
      return CW_WAIT_SEND_PEER;
    case CW_NCCL_SEND_WAIT:
      return CW_WAIT_SEND;
    case CW_NCCL_RECV_WAIT:
      return CW_WAIT_RECV;
    case CW_NCCL_RECV_FLUSH_WAIT:
      return CW_WAIT_RECV_FLUSH;
    case CW_NCCL_RECV_GPU_WAIT:
      return CW_WAIT_RECV_GPU;
    default:
      return CW_WAIT_NONE;
  }
}

void cwp_event_state(uint64_t handle, int state, const union cw_nccl_state_args* args) {
  struct cw_prof_shared* shared = memory();
  const uint32_t wait = wait_of(state);
  struct cw_prof_step* step;
  struct cw_prof_op* op;
  uint64_t now_ns;
  if (!shared || cw_prof_handle_kind(handle) != CW_PROF_STEP || wait == CW_WAIT_NONE) return;
  step = find_step(shared, handle);
  op = step ? find_op(shared, step->op) : NULL;
  if (!op) return;
  now_ns = cwp_now_ns();
  leave_state(op, step, now_ns);
  step->wait = wait;
  /* In other states NCCL tells the size of another step of the operation. */
  if (args && (wait == CW_WAIT_SEND || wait == CW_WAIT_RECV_FLUSH)) step->bytes = args->step_bytes;
  /* Data is there: the GPU gave it, or the network did. */
  if (!op->first_ns && wait != CW_WAIT_SEND_GPU && wait != CW_WAIT_RECV) op->first_ns = now_ns;
}
