// SPDX-License-Identifier: Apache-2.0
//
// The API's verbs, each once: the service, its roles, the client and the agent's side are made of this list.
//
// X(name, Request, Reply, role): `rpc name(Request) returns (Reply)` of cwfabric.proto, and the least Role that may
// call it. kSteer: what places flows by hand and what ends such placements, off included, since whoever may move flows
// has to be able to stop. kAdmin: what the agent may do by itself from then on.
#pragma once

// What the agent answers.
#define CW_AGENT_VERBS(X)                                                 \
  X(Status, StatusRequest, StatusReply, kRead)                            \
  X(Doctor, DoctorRequest, DoctorReply, kRead)                            \
  X(Paths, PathsRequest, PathsReply, kRead)                               \
  X(Links, LinksRequest, LinksReply, kRead)                               \
  X(Qps, QpsRequest, QpsReply, kRead)                                     \
  X(Counters, CountersRequest, CountersReply, kRead)                      \
  X(Clock, ClockRequest, ClockReply, kRead)                               \
  X(Why, WhyRequest, WhyReply, kRead)                                     \
  X(ListJobs, ListJobsRequest, ListJobsReply, kRead)                      \
  X(ListCollectives, ListCollectivesRequest, ListCollectivesReply, kRead) \
  X(Nics, NicsRequest, NicsReply, kRead)                                  \
  X(Labels, LabelsRequest, LabelsReply, kRead)                            \
  X(Drains, DrainsRequest, DrainsReply, kRead)                            \
  X(Label, LabelRequest, ActionReply, kSteer)                             \
  X(SteerSet, SteerSetRequest, ActionReply, kSteer)                       \
  X(SteerClear, SteerClearRequest, ActionReply, kSteer)                   \
  X(SteerLock, SteerLockRequest, ActionReply, kSteer)                     \
  X(Drain, DrainRequest, ActionReply, kSteer)                             \
  X(Undrain, UndrainRequest, ActionReply, kSteer)                         \
  X(Off, OffRequest, ActionReply, kSteer)                                 \
  X(SetMode, SetModeRequest, ActionReply, kAdmin)                         \
  X(BreakerReset, BreakerResetRequest, ActionReply, kAdmin)

// What the server makes of those.
#define CW_MADE_VERBS(X)              \
  X(Owd, OwdRequest, OwdReply, kRead) \
  X(SteerShow, SteerShowRequest, SteerShowReply, kRead)

#define CW_VERBS(X) CW_AGENT_VERBS(X) CW_MADE_VERBS(X)

// Whose reply is a stream; written by hand wherever they are served.
#define CW_STREAMED_VERBS(X) X(Events, EventsRequest, Event, kRead)
