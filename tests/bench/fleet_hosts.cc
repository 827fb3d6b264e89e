// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/fleet_hosts.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/api/calm_records.h"
#include "userspace/api/fleet.grpc.pb.h"
#include "userspace/uplink/batch_builder.h"

namespace cw::bench {
namespace {

namespace wire = ::cwfabric::v1;

constexpr int kHostsOfRack = 32, kVariants = 4, kFirstPort = 0xc000;
constexpr absl::Duration kPatience = absl::Minutes(1);
constexpr int64_t kIntervalNs = 10'000'000'000;

Addr HostAddr(int host) { return Addr::FromV4(0x0a000000 + static_cast<uint32_t>(host)); }
// Ports by which a packet comes into a switch: from below, and from a spine.
Addr LeafFromHost(int rack, int host) { return Addr::FromV4(0x0b000000 + static_cast<uint32_t>(rack * 64 + host)); }
Addr SpineFromLeaf(int spine, int rack) {
  return Addr::FromV4(0x0c000000 + static_cast<uint32_t>(spine * 4096 + rack));
}
Addr LeafFromSpine(int rack, int spine) { return Addr::FromV4(0x0d000000 + static_cast<uint32_t>(rack * 64 + spine)); }

struct Counts {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t acknowledged = 0, refusals = 0;
};

// One host's stream. gRPC calls its On… from threads of its own.
class HostLine final : public grpc::ClientBidiReactor<wire::ToFleet, wire::ToHost> {
 public:
  HostLine(std::string name, Counts& counts) : name_(std::move(name)), counts_(counts) {}

  void Begin(const std::shared_ptr<grpc::Channel>& channel, uint64_t run) {
    stub_ = wire::Uplink::NewStub(channel);
    stub_->async()->Connect(&context_, this);
    wire::ToFleet first;
    first.mutable_hello()->set_host(name_);
    first.mutable_hello()->set_run(run);
    first.mutable_hello()->set_version("bench");
    Send(std::move(first));
    StartRead(&in_);
    StartCall();
  }
  void Send(wire::ToFleet message) {
    const std::lock_guard lock(mutex_);
    out_.push_back(std::move(message));
    if (out_.size() == 1) StartWrite(&out_.front());
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    out_.pop_front();
    if (ok && !out_.empty()) StartWrite(&out_.front());
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      const std::lock_guard lock(counts_.mutex);
      if (in_.has_welcome()) welcome_ = true;
      if (in_.has_ack()) {
        counts_.refusals += static_cast<uint64_t>(in_.ack().refusals_size());
        counts_.acknowledged += in_.ack().through_sequence() - acknowledged_;
        acknowledged_ = in_.ack().through_sequence();
        asked_again_ |= in_.ack().again() || in_.ack().send_definitions() || in_.ack().pause_s() > 0;
      }
    }
    counts_.changed.notify_all();
    StartRead(&in_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::lock_guard lock(counts_.mutex);
    done_ = true;
    why_ = status.error_message();
    counts_.changed.notify_all();
  }
  void End() { context_.TryCancel(); }

  // Under the counts' lock.
  bool welcome() const { return welcome_; }
  bool done() const { return done_; }
  bool asked_again() const { return asked_again_; }
  const std::string& why() const { return why_; }
  uint64_t acknowledged() const { return acknowledged_; }

 private:
  const std::string name_;
  Counts& counts_;
  std::unique_ptr<wire::Uplink::Stub> stub_;
  grpc::ClientContext context_;
  wire::ToHost in_;
  std::mutex mutex_;  // of the messages that go out
  std::deque<wire::ToFleet> out_;
  bool welcome_ = false, done_ = false, asked_again_ = false;
  std::string why_;
  uint64_t acknowledged_ = 0;
};

}  // namespace

struct FleetHosts::Impl {
  struct Host {
    std::string name;
    tls::Issued own;
    uplink::BatchBuilder builder;
    std::vector<wire::Batch> calm;  // what it says when nothing happens, in variants
    uint64_t sequence = 0;
    std::unique_ptr<HostLine> line;
  };

  FleetShape shape;
  std::string server, authority;
  Counts counts;
  std::vector<Host> hosts;
  uint64_t sent_bytes = 0, sent_batches = 0;

  int PeerOf(int host, int peer) const { return (host + 1 + peer * 7) % shape.hosts; }
  std::vector<uplink::PathSeen> PathsOf(int host, int variant, int dead_spine) const;
  static telemetry::Sketch QueueOf(int host, int path, int variant);
  static uint64_t BaseOf(int path) { return 5000 + static_cast<uint64_t>(path) * 13; }
  absl::Status WaitFor(const std::function<bool(const HostLine&)>& so);
  void Send(Host& host, wire::Batch batch);
};

// Mostly no queue, some of some microseconds: what a link at half load shows.
telemetry::Sketch FleetHosts::Impl::QueueOf(int host, int path, int variant) {
  std::mt19937_64 random(static_cast<uint64_t>((host * 1000 + path) * kVariants + variant));
  telemetry::Sketch queue;
  for (int i = 0; i < 92; ++i) queue.Add(0);
  for (uint64_t extra = random() % 7; extra > 0; --extra) queue.Add(static_cast<int64_t>(1100 + random() % 8000));
  return queue;
}

std::vector<uplink::PathSeen> FleetHosts::Impl::PathsOf(int host, int variant, int dead_spine) const {
  std::vector<uplink::PathSeen> out;
  const int rack = host / kHostsOfRack;
  for (int p = 0; p < shape.peers; ++p) {
    const int peer = PeerOf(host, p);
    const int far = peer / kHostsOfRack;
    for (int s = 0; s < shape.spines; ++s) {
      uplink::PathSeen path{.local = HostAddr(host), .remote = HostAddr(peer), .peer = NameOf(peer)};
      path.udp_port = static_cast<uint16_t>(kFirstPort + s);
      path.state = s == dead_spine && rack != far ? wire::PATH_STATE_DEAD : wire::PATH_STATE_UP;
      path.hops = {LeafFromHost(rack, host % kHostsOfRack)};
      if (rack != far) path.hops->insert(path.hops->end(), {SpineFromLeaf(s, rack), LeafFromSpine(far, s)});
      const int index = p * shape.spines + s;
      path.base_ns = BaseOf(index);
      path.known = 100;
      path.lost = path.state == wire::PATH_STATE_UP ? 0 : 100;
      if (path.lost == 0) path.queue = QueueOf(host, index, variant);
      out.push_back(std::move(path));
    }
  }
  return out;
}

absl::Status FleetHosts::Impl::WaitFor(const std::function<bool(const HostLine&)>& so) {
  for (Host& host : hosts) {
    std::unique_lock lock(counts.mutex);
    const auto ready = [&] { return host.line->done() || host.line->asked_again() || so(*host.line); };
    if (!counts.changed.wait_for(lock, absl::ToChronoSeconds(kPatience), ready))
      return absl::UnavailableError(absl::StrCat("no answer for ", host.name));
    if (host.line->done()) return absl::UnavailableError(absl::StrCat(host.name, ": ", host.line->why()));
    if (host.line->asked_again()) return absl::UnavailableError(host.name + ": over quota, or a batch went missing");
  }
  return absl::OkStatus();
}

void FleetHosts::Impl::Send(Host& host, wire::Batch batch) {
  batch.set_sequence(++host.sequence);
  wire::ToFleet message;
  *message.mutable_batch() = std::move(batch);
  if (host.sequence > 1) {
    sent_bytes += message.ByteSizeLong();
    ++sent_batches;
  }
  host.line->Send(std::move(message));
}

std::string FleetHosts::NameOf(int host) { return absl::StrCat("node", host); }

absl::StatusOr<std::unique_ptr<FleetHosts>> FleetHosts::Make(const FleetShape& shape, const tls::Issued& authority,
                                                             const std::string& server) {
  auto impl = std::make_unique<Impl>();
  impl->shape = shape;
  impl->server = server;
  impl->authority = authority.certificate;
  for (int h = 0; h < shape.hosts; ++h) {
    absl::StatusOr<tls::Issued> own = tls::MakeHost(authority, NameOf(h), {}, {absl::Now(), 1});
    if (!own.ok()) return own.status();
    const uint64_t run = 1000 + static_cast<uint64_t>(h);
    impl->hosts.push_back({.name = NameOf(h), .own = *std::move(own), .builder = {NameOf(h), run}});
    Impl::Host& host = impl->hosts.back();
    wire::Inventory inventory;
    inventory.set_kernel("6.1.0");
    for (int variant = 0; variant < kVariants; ++variant)
      host.calm.push_back(host.builder.Detail(impl->PathsOf(h, variant, -1), inventory, {}, {}));
    // Here, since a host's own processor is not what is measured.
    for (wire::Batch& batch : host.calm) api::PackCalmRecords(batch);
    host.line = std::make_unique<HostLine>(host.name, impl->counts);
  }
  return std::unique_ptr<FleetHosts>(new FleetHosts(std::move(impl)));
}

FleetHosts::FleetHosts(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

FleetHosts::~FleetHosts() {
  for (Impl::Host& host : impl_->hosts) host.line->End();
  for (Impl::Host& host : impl_->hosts) {
    std::unique_lock lock(impl_->counts.mutex);
    impl_->counts.changed.wait_for(lock, absl::ToChronoSeconds(kPatience), [&] { return host.line->done(); });
  }
}

absl::Status FleetHosts::Connect(absl::Duration patience) {
  const absl::Time end = absl::Now() + patience;
  for (Impl::Host& host : impl_->hosts) {
    grpc::SslCredentialsOptions own{
        .pem_root_certs = impl_->authority, .pem_private_key = host.own.key, .pem_cert_chain = host.own.certificate};
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection for each
    const uint64_t run = 1000 + static_cast<uint64_t>(&host - impl_->hosts.data());
    host.line->Begin(grpc::CreateCustomChannel(impl_->server, grpc::SslCredentials(own), arguments), run);
  }
  absl::Status status = impl_->WaitFor([](const HostLine& line) { return line.welcome(); });
  return status.ok() && absl::Now() > end ? absl::DeadlineExceededError("connecting took too long") : status;
}

absl::Status FleetHosts::Tell(int64_t to_ns, int ahead) {
  for (Impl::Host& host : impl_->hosts) {
    {
      std::unique_lock lock(impl_->counts.mutex);
      const auto room = [&] {
        return host.line->done() || host.line->asked_again() ||
               host.sequence - host.line->acknowledged() < static_cast<uint64_t>(ahead);
      };
      if (!impl_->counts.changed.wait_for(lock, absl::ToChronoSeconds(kPatience), room))
        return absl::UnavailableError("nothing is acknowledged");
      if (host.line->done() || host.line->asked_again())
        return absl::UnavailableError(absl::StrCat(host.name, ": stream ended, or over quota: ", host.line->why()));
    }
    // The first has the definitions.
    wire::Batch batch = host.calm[host.sequence == 0 ? 0 : 1 + host.sequence % (kVariants - 1)];
    batch.set_from_ns(to_ns - kIntervalNs);
    batch.set_to_ns(to_ns);
    impl_->Send(host, std::move(batch));
  }
  return absl::OkStatus();
}

void FleetHosts::TellDead(int64_t to_ns, int spine) {
  std::vector<wire::Batch> batches;
  for (int h = 0; h < impl_->shape.hosts; ++h) {
    Impl::Host& host = impl_->hosts[static_cast<size_t>(h)];
    const uplink::Interval interval{.from_ns = to_ns - kIntervalNs / 10, .to_ns = to_ns};
    wire::Inventory inventory;
    inventory.set_kernel("6.1.0");
    batches.push_back(host.builder.Detail(impl_->PathsOf(h, 1, spine), inventory, {}, interval));
  }
  for (size_t h = 0; h < batches.size(); ++h) impl_->Send(impl_->hosts[h], std::move(batches[h]));
}

absl::Status FleetHosts::WaitForAcknowledgements() {
  for (Impl::Host& host : impl_->hosts) {
    std::unique_lock lock(impl_->counts.mutex);
    const auto all = [&] { return host.line->done() || host.line->acknowledged() >= host.sequence; };
    if (!impl_->counts.changed.wait_for(lock, absl::ToChronoSeconds(kPatience), all) || host.line->done())
      return absl::UnavailableError(absl::StrCat(host.name, " is not acknowledged: ", host.line->why()));
  }
  return absl::OkStatus();
}

const FleetShape& FleetHosts::shape() const { return impl_->shape; }
uint64_t FleetHosts::batches() const {
  const std::lock_guard lock(impl_->counts.mutex);
  return impl_->counts.acknowledged;
}
uint64_t FleetHosts::refusals() const {
  const std::lock_guard lock(impl_->counts.mutex);
  return impl_->counts.refusals;
}
uint64_t FleetHosts::bytes() const { return impl_->sent_bytes; }
uint64_t FleetHosts::of_bytes() const { return impl_->sent_batches; }

std::vector<std::string> FleetHosts::NamesOfNumbers() {
  return {"path_up", "path_base_ns", "path_queue_p50_ns", "path_queue_p99_ns", "path_sent_total", "path_lost_total"};
}

std::vector<FleetHosts::Numbers> FleetHosts::NumbersOf(int host, uint64_t tick) const {
  std::vector<Numbers> out;
  const int variant = tick == 0 ? 0 : 1 + static_cast<int>(tick % (kVariants - 1));
  for (int path = 0; path < impl_->shape.PathsOfHost(); ++path) {
    const telemetry::Sketch queue = Impl::QueueOf(host, path, variant);
    const int peer = impl_->PeerOf(host, path / impl_->shape.spines);
    out.push_back({.local = HostAddr(host).ToString(),
                   .remote = HostAddr(peer).ToString(),
                   .port = kFirstPort + path % impl_->shape.spines,
                   .values = {1, static_cast<double>(Impl::BaseOf(path)), queue.QuantileNs(0.5), queue.QuantileNs(0.99),
                              100.0 * static_cast<double>(tick + 1), 0}});
  }
  return out;
}

}  // namespace cw::bench
