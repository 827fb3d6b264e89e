// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/uplink_service.h"

#include <chrono>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/api/calm_records.h"
#include "userspace/api/printable_message.h"
#include "userspace/fleet/ingest/host_name.h"
#include "userspace/fleet/main/who.h"
#include "userspace/model/steady.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {

namespace pb = cwfabric::v1;

namespace {

constexpr std::chrono::milliseconds kLooksFor{2};
constexpr absl::Duration kHelloPatience = absl::Seconds(10);
constexpr size_t kMostUnread = 1024;  // messages to a host; it has 256 batches under way at most

std::string AndMore(uint64_t untold) {
  return untold == 0 ? "" : absl::StrCat("; ", untold, " more such lines were left out");
}

}  // namespace

// Deletes itself when gRPC has done with it.
class HostStream final : public grpc::ServerBidiReactor<pb::ToFleet, pb::ToHost> {
 public:
  HostStream(UplinkService& service, grpc::CallbackServerContext* context, absl::StatusOr<Speaker> who)
      : service_(service), context_(context), who_(std::move(who)) {
    const absl::Status may = who_.ok() ? service_.Open(*this, *who_) : who_.status();
    if (may.ok()) {
      StartRead(&in_);
    } else {
      FinishWith(ToGrpc(may));
    }
  }

  void Send(pb::ToHost message) {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    if (out_.size() >= kMostUnread) {  // one is being written: its end ends the stream
      out_.erase(out_.begin() + 1, out_.end());
      ending_ = true;
      end_ = {grpc::StatusCode::RESOURCE_EXHAUSTED, "the host does not read what it is sent"};
      if (!writing_) Finish(end_);
      return;
    }
    out_.push_back(std::move(message));
    if (!writing_) WriteNext();
  }

  void FinishWith(grpc::Status status) {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    ending_ = true;
    end_ = std::move(status);
    if (!writing_) Finish(end_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return FinishWith(grpc::Status::OK);
    api::MakePrintable(in_);
    if (in_.has_hello() && host.empty()) {
      absl::StatusOr<pb::Welcome> welcome = service_.Begin(*this, in_.hello(), *who_);
      if (!welcome.ok()) return FinishWith(ToGrpc(welcome.status()));
    } else if (in_.has_batch() && !host.empty()) {
      TakeBatch(*in_.mutable_batch());
    } else if (in_.has_drains() && !host.empty()) {
      service_.Take(*this, in_.drains());
    } else if (in_.has_ring() && !host.empty()) {
      service_.Take(*this, in_.ring());
    } else {
      return FinishWith({grpc::StatusCode::INVALID_ARGUMENT, "a stream is one Hello, and then batches"});
    }
    if (!Ending()) StartRead(&in_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    out_.pop_front();
    if (ending_) return Finish(end_);
    if (ok && !out_.empty()) WriteNext();
  }

  void OnCancel() override { FinishWith(grpc::Status::CANCELLED); }

  void OnDone() override {
    service_.End(*this);
    delete this;
  }

  const Speaker* who() const { return who_.ok() ? &*who_ : nullptr; }

  void Cut() { context_->TryCancel(); }

  const absl::Time since = SteadyNow();
  bool leaves = false;  // it was told so
  std::string host;     // "" before Hello; written under the service's lock
  uint64_t run = 0;
  int unasked = 0;
  bool takes_drains = false, ask_again = false;
  HostRings::State ring;

 private:
  bool Ending() {
    const std::lock_guard lock(mutex_);
    return ending_;
  }
  // Inflated only if it may come, and beside the service's lock. What is damaged stays as it is, and is refused.
  void TakeBatch(pb::Batch& batch) {
    if (batch.calm_paths().empty()) return service_.Take(*this, batch, 0);
    const uint64_t bytes = batch.ByteSizeLong();
    if (!service_.Admit(*this, batch)) return;
    const absl::Status unpacked = api::UnpackCalmRecords(service_.most_records(), batch);
    // It comes again.
    if (absl::IsResourceExhausted(unpacked)) return FinishWith(ToGrpc(unpacked));
    service_.Take(*this, batch, bytes);
  }
  void WriteNext() {
    writing_ = true;
    StartWrite(&out_.front());
  }

  UplinkService& service_;
  grpc::CallbackServerContext* const context_;
  const absl::StatusOr<Speaker> who_;
  pb::ToFleet in_;
  std::mutex mutex_;  // of all below
  std::deque<pb::ToHost> out_;
  bool writing_ = false, ending_ = false;
  grpc::Status end_;
};

grpc::ServerBidiReactor<pb::ToFleet, pb::ToHost>* UplinkService::Connect(grpc::CallbackServerContext* context) {
  return new HostStream(*this, context, callers_.HostOf(*context));
}

absl::Status UplinkService::Open(HostStream& stream, const Speaker& who) {
  const std::lock_guard lock(mutex_);
  int& silent = silent_[{who.issuer, who.serial}];
  if (silent >= kMostSilent) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMostSilent, " streams of this certificate have not said Hello yet; one after the other"));
  }
  ++silent;
  open_.insert(&stream);
  return absl::OkStatus();
}

void UplinkService::NoLongerSilent(const HostStream& stream) {
  const auto place = silent_.find({stream.who()->issuer, stream.who()->serial});
  if (place != silent_.end() && --place->second <= 0) silent_.erase(place);
}

void UplinkService::EndStrangers(absl::Time now) {
  const bool any_revoked = callers_.revocations().any();
  const absl::Time steady = SteadyNow();
  const std::lock_guard lock(mutex_);
  for (HostStream* stream : open_) {
    const Speaker& who = *stream->who();
    if (stream->leaves) {  // it does not read that
      stream->Cut();
      continue;
    }
    const bool over = now > who.not_after,
               revoked = any_revoked && callers_.revocations().Contains(who.issuer, who.serial);
    if (over || revoked) {
      const std::string why = absl::StrCat("its certificate ", revoked ? "is revoked" : "expired");
      spdlog::warn("the stream of {} is ended: {}", stream->host.empty() ? who.from : stream->host, why);
      stream->leaves = true;
      stream->FinishWith({grpc::StatusCode::PERMISSION_DENIED, why});
    } else if (stream->host.empty() && steady - stream->since > kHelloPatience) {
      stream->leaves = true;
      stream->FinishWith({grpc::StatusCode::DEADLINE_EXCEEDED, "it said no Hello"});
    }
  }
}

absl::StatusOr<pb::Welcome> UplinkService::Begin(HostStream& stream, const pb::Hello& hello, const Speaker& who) {
  if (MaySpeakFor(who.names, hello.host()).ok()) ingest_.Prepare(hello.host(), hello.run());
  const std::lock_guard lock(mutex_);
  absl::StatusOr<pb::Welcome> welcome = ingest_.Connect(hello, who, absl::Now());
  if (!welcome.ok()) {
    if (const auto untold = lines_.Tell("refused " + who.serial, SteadyNow()))
      spdlog::warn("{} is not taken: {}{}", CutUtf8(hello.host(), 253), std::string(welcome.status().message()),
                   AndMore(*untold));
    return welcome;
  }
  welcome->set_takes_calm_paths(true);
  HostStream*& place = streams_[hello.host()];
  if (place != nullptr) place->FinishWith({grpc::StatusCode::ABORTED, "the host connected again"});
  place = &stream;
  NoLongerSilent(stream);
  stream.host = hello.host();
  stream.run = hello.run();
  if (const auto untold = lines_.Tell(hello.host(), SteadyNow()))
    spdlog::info("{} is connected, version {}{}", hello.host(), CutUtf8(hello.version(), 64), AndMore(*untold));
  if (const std::string twins = ingest_.Find(hello.host())->TwinsNow(absl::Now()); !twins.empty()) {
    if (const auto untold = lines_.Tell("twins " + hello.host(), SteadyNow()))
      spdlog::error("{}{}", twins, AndMore(*untold));
  }
  if (const std::string& fault = ingest_.Find(hello.host())->metrics_fault; !fault.empty())
    spdlog::warn("{} is no target of /sd: {}", hello.host(), fault);
  pb::ToHost first;
  *first.mutable_welcome() = *welcome;
  stream.Send(std::move(first));
  stream.takes_drains = hello.takes_drains();
  if (orders_ != nullptr) orders_->Forget(stream.host);
  SendOrdersTo(stream);
  stream.ring = {.connected = true,
                 .keeps_ring = hello.keeps_ring(),
                 .no_ring = CutUtf8(hello.no_ring(), 300),
                 .connection = ++connections_};
  if (rings_ != nullptr) rings_->Now(stream.host, stream.ring);
  return welcome;
}

void UplinkService::SendOrdersTo(HostStream& stream) {
  if (orders_ == nullptr || !stream.takes_drains) return;
  pb::ToHost message;
  *message.mutable_drains() = orders_->OrdersFor(stream.host);
  stream.Send(std::move(message));
}

void UplinkService::SendOrders() {
  const std::lock_guard lock(mutex_);
  for (const auto& [host, stream] : streams_) SendOrdersTo(*stream);
}

void UplinkService::Take(HostStream& stream, const pb::DrainReport& report) {
  const std::lock_guard lock(mutex_);
  const auto place = streams_.find(stream.host);
  if (orders_ == nullptr || place == streams_.end() || place->second != &stream) return;
  if (ingest_.TakesReport(stream.host, report.ByteSizeLong(), absl::Now())) return orders_->Take(stream.host, report);
  // What it said before may hold no longer, and it says nothing twice: it is asked anew with its next batch.
  orders_->Forget(stream.host);
  stream.ask_again = true;
}

void UplinkService::Take(HostStream& stream, const pb::RingAnswer& answer) {
  const std::lock_guard lock(mutex_);
  const auto place = streams_.find(stream.host);
  if (rings_ == nullptr || place == streams_.end() || place->second != &stream) return;
  stream.unasked = rings_->Take(stream.host, answer) ? 0 : stream.unasked + 1;
  if (stream.unasked <= kMostUnasked) return;
  spdlog::warn("{} sends of its ring what nobody asked for: its stream is ended", stream.host);
  stream.FinishWith({grpc::StatusCode::INVALID_ARGUMENT, "nobody asked for what it sends of its ring"});
}

void UplinkService::SendRing(const std::string& host, const pb::RingAsk& ask) {
  const std::lock_guard lock(mutex_);
  const auto place = streams_.find(host);
  if (place == streams_.end() || !place->second->ring.keeps_ring) return;
  pb::ToHost message;
  *message.mutable_ring() = ask;
  place->second->Send(std::move(message));
}

HostRings::State UplinkService::RingOf(const std::string& host) {
  const std::lock_guard lock(mutex_);
  const auto place = streams_.find(host);
  return place == streams_.end() ? HostRings::State{} : place->second->ring;
}

bool UplinkService::Admit(HostStream& stream, const pb::Batch& batch) {
  const std::lock_guard lock(mutex_);
  std::optional<pb::Ack> ack = ingest_.Admit(stream.host, batch, absl::Now());
  if (!ack) return true;
  Reply(stream, *std::move(ack));
  return false;
}

void UplinkService::Take(HostStream& stream, const pb::Batch& batch, uint64_t admitted) {
  const std::lock_guard lock(mutex_);
  std::optional<pb::Ack> ack = ingest_.Enqueue(stream.host, batch, absl::Now(), admitted);
  if (!ack && std::exchange(stream.ask_again, false)) SendOrdersTo(stream);
  if (ack) Reply(stream, *std::move(ack));
}

void UplinkService::Reply(HostStream& stream, pb::Ack ack) {
  pb::ToHost message;
  *message.mutable_ack() = std::move(ack);
  stream.Send(std::move(message));
}

void UplinkService::End(HostStream& stream) {
  const std::lock_guard lock(mutex_);
  if (open_.erase(&stream) > 0 && stream.host.empty()) NoLongerSilent(stream);
  const auto place = streams_.find(stream.host);
  if (place == streams_.end() || place->second != &stream) return;
  streams_.erase(place);
  ingest_.Disconnect(stream.host, stream.run);
  if (orders_ != nullptr) orders_->Forget(stream.host);
  if (rings_ != nullptr) rings_->Now(stream.host, {.connected = false, .connection = stream.ring.connection});
  if (const auto untold = lines_.Tell(stream.host, SteadyNow()))
    spdlog::info("{} is not connected any more{}", stream.host, AndMore(*untold));
}

absl::Status UplinkService::Flush() {
  Ingest::Taken taken;
  {
    const std::lock_guard lock(mutex_);
    if (!ingest_.has_work()) return absl::OkStatus();
    taken = ingest_.Take();
  }
  // A commit takes its time: streams and questions go on meanwhile.
  const absl::Status stored = ingest_.Put(taken);
  const std::lock_guard lock(mutex_);
  for (auto& [host, ack] : ingest_.Settle(taken, stored.ok(), absl::Now())) {
    const auto place = streams_.find(host);
    if (place != streams_.end()) Reply(*place->second, std::move(ack));
  }
  changes_ = ingest_.changes();
  return stored;
}

void UplinkService::EachHost(const std::function<void(const LiveHost&)>& look) {
  std::vector<std::string> names;
  {
    const std::lock_guard lock(mutex_);
    for (const LiveHost* host : ingest_.Hosts()) names.push_back(host->host);
  }
  // Streams that are many wait for the lock: who lets go of it after each host waits for them as often.
  for (auto next = names.begin(); next != names.end();) {
    const std::lock_guard lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + kLooksFor;
    do {
      if (const LiveHost* host = ingest_.Find(*next); host != nullptr) look(*host);
    } while (++next != names.end() && std::chrono::steady_clock::now() < until);
  }
}

std::vector<HostFacts> UplinkService::Facts() {
  const std::lock_guard lock(mutex_);
  std::vector<HostFacts> facts;
  for (const auto& [name, of] : ingest_.facts()) {
    if (of.removed_ns == 0) facts.push_back(of);
  }
  return facts;
}

absl::Status UplinkService::Remove(const std::string& host, bool force) {
  absl::StatusOr<HostFacts> gone;
  {
    const std::lock_guard lock(mutex_);
    gone = ingest_.MayRemove(host, force, absl::Now());
  }
  if (!gone.ok()) return gone.status();
  if (absl::Status status = ingest_.KeepRemoved(*gone); !status.ok()) return status;
  const std::lock_guard lock(mutex_);
  if (absl::Status status = ingest_.Remove(*gone, force); !status.ok()) return status;
  ++removals_;
  if (orders_ != nullptr) orders_->Forget(host);
  const auto place = streams_.find(host);
  if (place == streams_.end()) return absl::OkStatus();
  place->second->FinishWith({grpc::StatusCode::ABORTED, "an operator removed this host"});
  streams_.erase(place);
  return absl::OkStatus();
}

std::vector<LiveHost> UplinkService::Hosts() {
  const std::lock_guard lock(mutex_);
  std::vector<LiveHost> hosts;
  for (const LiveHost* host : ingest_.Hosts()) hosts.push_back(*host);
  return hosts;
}

}  // namespace cw::fleet
