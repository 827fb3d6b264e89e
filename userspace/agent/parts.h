// SPDX-License-Identifier: Apache-2.0
//
// The agent's parts by name, for those who only hold or pass one.
#pragma once

namespace cw::agent {

class Addresses;
class AddressWatch;
class BalanceMoves;
class BlindNotes;
class Breaker;
class CarryKernel;
class Carriers;
class Causes;
class Chunks;
class ClockKeeper;
class ContentionWindow;
class ControlRecord;
class Damping;
class Draining;
class DryRun;
class EngineTicks;
class EventsFile;
class FabricNews;
class FlowEnds;
class FlowReader;
class FlowRecords;
class FlowSamples;
class FlowsView;
class Gaps;
class Greeting;
class Hooks;
class Intake;
class Jobs;
class KernelMover;
class KernelQps;
class LabelBook;
class Lease;
class LinkFlaps;
class Losses;
class Modes;
class MoveNews;
class NativePorts;
class NicClocks;
class NicFailover;
class OwnerMover;
class PairKeeper;
class PathNews;
class PathsView;
class PeerMail;
class PeerWatch;
class Placer;
class ProbeNews;
class QpMoments;
class RdmaWatch;
class Reloader;
class Rerolls;
class Returns;
class RingTap;
class Scopes;
class SizeCheck;
class StatusView;
class Steering;
class Tails;
class Totals;
class UnseenFlows;
class VerbsProbes;
class WhyView;

}  // namespace cw::agent
