// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/api/fleet.grpc.pb.h"
#include "userspace/api/grpc_clock.h"
#include "userspace/api/grpc_log.h"
#include "userspace/api/plain_messages.h"
#include "userspace/model/steady.h"
#include "userspace/tls/handshake.h"
#include "userspace/uplink/delivery.h"

namespace cw::uplink {
namespace {

constexpr absl::Duration kMostWait = absl::Seconds(5);
constexpr absl::Duration kConnectPatience = absl::Seconds(5);
constexpr absl::Duration kWhyPatience = absl::Seconds(1);  // an agent that ends may wait for it
constexpr absl::Duration kStopLook = absl::Milliseconds(200);
constexpr absl::Duration kGoodSession = absl::Seconds(10);
constexpr absl::Duration kExpirePeriod = absl::Minutes(1);
constexpr absl::Duration kRefusalsToldEvery = absl::Minutes(10);
// What a service may do to this host, whatever it sends: it needs a message or two a second, of some kilobytes.
constexpr int kMostMessageBytes = 4 << 20;
constexpr size_t kMostHeardBytes = 8 << 20, kMostHeard = 256;  // read and not looked at; more waits in the network
constexpr double kMostAtOnce = 1000, kMostPerSecond = 100;     // messages, besides two for each batch
constexpr int kKeepaliveMs = 20'000, kKeepaliveAnswerMs = 10'000;

using Stream = grpc::ClientReaderWriter<wire::ToFleet, wire::ToHost>;

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::UnavailableError("the service ended the stream");
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& endpoint, const tls::Material& material,
                                                           const std::function<bool()>& stopped) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveAnswerMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // each try is a connection with the files as they are now
  arguments.SetMaxReceiveMessageSize(kMostMessageBytes);
  api::TakeNoCompression(arguments);
  auto channel = grpc::CreateCustomChannel(
      endpoint,
      grpc::SslCredentials(
          {.pem_root_certs = material.ca, .pem_private_key = material.key, .pem_cert_chain = material.cert}),
      arguments);
  for (const absl::Time end = SteadyNow() + kConnectPatience; SteadyNow() < end;) {
    if (channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kStopLook))) return channel;
    if (stopped()) return absl::CancelledError("stopped");
  }
  const absl::StatusOr<tls::HostPort> server = tls::ParseHostPort(endpoint);
  if (!server.ok()) return server.status();
  absl::Status why = tls::TryHandshake(*server, material, kWhyPatience);
  return why.ok() ? absl::UnavailableError("it did not answer in time") : why;
}

}  // namespace

absl::Duration BackOff(int round, double random) {
  const absl::Duration most = std::min(absl::Seconds(30), absl::Milliseconds(500) * (1 << std::clamp(round, 0, 10)));
  return most * (0.5 + 0.5 * random);
}

struct Client::Impl {
  Impl(ClientOptions given, std::unique_ptr<Spool> of)
      : options(std::move(given)), spool(std::move(of)), delivery(*spool, options.host) {}

  const ClientOptions options;
  std::mutex mutex;  // of all below up to the thread
  std::condition_variable news;
  std::unique_ptr<Spool> spool;
  Delivery delivery;
  bool stop = false;
  bool appended = false, ring_news = false;
  std::deque<wire::ToHost> heard;
  size_t heard_bytes = 0;  // of memory
  bool closing = false;    // nobody looks at what is heard any more
  absl::Time writes_since = absl::InfiniteFuture();
  std::optional<wire::DrainReport> report;
  bool ended = false;   // the stream, from the other side
  bool floods = false;  // it
  double may_say = 0;   // messages
  grpc::ClientContext* context = nullptr;
  std::string endpoint;
  uint64_t connects = 0;  // the client's thread alone writes it
  std::thread thread;

  // The client's thread alone.
  std::string told;
  uint64_t refusals_told = 0;
  absl::Time refusals_told_at = absl::InfinitePast(), expired_at = absl::InfinitePast();
  std::mt19937_64 random{std::random_device{}()};

  void Run();
  bool Stopped();
  absl::Status Session(const std::string& to);
  void Hear(Stream& stream);
  bool Write(Stream& stream, const wire::ToFleet& message);
  void LookAtWrites();
  absl::Status Talk(Stream& stream, std::unique_lock<std::mutex>& lock, const std::string& to);
  absl::StatusOr<bool> SendRing(Stream& stream, std::unique_lock<std::mutex>& lock);
  void PopHeard();
  absl::Status TakeNews(std::unique_lock<std::mutex>& lock, wire::Definitions& definitions);
  absl::Status Welcomed(Stream& stream, std::unique_lock<std::mutex>& lock, wire::Definitions& definitions);
  void Tell(const std::string& text, bool alert);
  void TellRefusals(std::unique_lock<std::mutex>& lock);
};

// The same is not told twice in a row.
void Client::Impl::Tell(const std::string& text, bool alert) {
  if (text == told) return;
  told = text;
  options.tell(text, alert);
}

void Client::Impl::TellRefusals(std::unique_lock<std::mutex>& lock) {
  const absl::Time now = SteadyNow();
  if (delivery.refused() == refusals_told || now < refusals_told_at + kRefusalsToldEvery) return;
  const std::string text = absl::StrFormat("the fleet service refused %d records; the last: %s",
                                           delivery.refused() - refusals_told, delivery.last_refusal());
  refusals_told = delivery.refused();
  refusals_told_at = now;
  lock.unlock();
  options.tell(text, true);
  lock.lock();
}

void Client::Impl::Run() {
  api::LimitGrpc();
  api::WatchClockForGrpc();
  size_t turn = 0;
  int round = 0;
  while (!Stopped()) {
    const std::string to = options.endpoints[turn % options.endpoints.size()];
    const uint64_t before = connects;
    const absl::Time begun = SteadyNow();
    const absl::Status why = Session(to);
    if (Stopped()) return;
    const bool was_there = connects != before;
    // A service that takes us and drops us at once is no better than none.
    if (was_there && SteadyNow() - begun > kGoodSession) round = 0;
    turn = was_there ? 0 : turn + 1;
    if (!was_there && turn % options.endpoints.size() != 0) continue;  // the next one may be there
    Tell(absl::StrFormat("not connected to the fleet service: %s: %s; what there is to tell is kept", to,
                         std::string(why.message())),
         true);
    const double drawn = std::uniform_real_distribution<double>(0, 1)(random);
    std::unique_lock lock(mutex);
    spool->Expire(absl::Now()).IgnoreError();  // what is wrong with the disk, Append says
    news.wait_for(lock, absl::ToChronoMilliseconds(BackOff(round++, drawn)), [this] { return stop; });
  }
}

bool Client::Impl::Stopped() {
  const std::lock_guard lock(mutex);
  return stop;
}

// Until the stream ends. What nobody has looked at yet holds the service up, not this host's memory.
void Client::Impl::Hear(Stream& stream) {
  wire::ToHost message;
  absl::Time looked = SteadyNow();
  while (stream.Read(&message)) {
    std::unique_lock lock(mutex);
    const absl::Time now = SteadyNow();
    may_say = std::min(kMostAtOnce, may_say + kMostPerSecond * absl::ToDoubleSeconds(now - looked)) - 1;
    looked = now;
    if (may_say < 0) {
      floods = true;
      context->TryCancel();
      break;
    }
    heard.push_back(std::move(message));
    heard_bytes += heard.back().SpaceUsedLong();
    message = {};
    news.notify_all();
    news.wait(lock, [this] { return closing || (heard.size() < kMostHeard && heard_bytes < kMostHeardBytes); });
  }
  const std::lock_guard lock(mutex);
  ended = true;
  news.notify_all();
}

bool Client::Impl::Write(Stream& stream, const wire::ToFleet& message) {
  {
    const std::lock_guard lock(mutex);
    writes_since = SteadyNow();
  }
  const bool written = stream.Write(message);
  const std::lock_guard lock(mutex);
  writes_since = absl::InfiniteFuture();
  return written;
}

// A service that reads nothing would keep the stream for ever. The lock is held.
void Client::Impl::LookAtWrites() {
  if (context != nullptr && SteadyNow() - writes_since > options.write_patience) context->TryCancel();
}

absl::Status Client::Impl::Session(const std::string& to) {
  const absl::StatusOr<tls::Material> material = tls::Load(options.tls);
  if (!material.ok()) return material.status();
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = OpenChannel(to, *material, [this] { return Stopped(); });
  if (!channel.ok()) return channel.status();
  const auto stub = wire::Uplink::NewStub(*channel);
  grpc::ClientContext call;
  const std::unique_ptr<Stream> stream = stub->Connect(&call);
  std::unique_lock lock(mutex);
  context = &call;
  heard.clear();
  heard_bytes = 0;
  ended = closing = floods = false;
  may_say = kMostAtOnce;
  std::thread reader([&] { Hear(*stream); });
  absl::Status status = stop ? absl::CancelledError("stopped") : Talk(*stream, lock, to);
  endpoint.clear();
  closing = true;
  news.notify_all();
  lock.unlock();
  if (absl::IsCancelled(status) || absl::IsDeadlineExceeded(status))
    call.TryCancel();
  else
    stream->WritesDone();
  {
    const std::unique_lock again(mutex);
    if (!ended) call.TryCancel();
  }
  reader.join();
  const grpc::Status end = stream->Finish();
  lock.lock();
  context = nullptr;
  if (floods) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("it sent more than %.0f messages a second that nobody asked for", kMostPerSecond));
  }
  return absl::IsUnavailable(status) ? FromGrpc(end) : status;
}

absl::Status Client::Impl::Welcomed(Stream& stream, std::unique_lock<std::mutex>& lock,
                                    wire::Definitions& definitions) {
  lock.unlock();
  wire::ToFleet first;
  *first.mutable_hello() = options.hello();
  const bool written = Write(stream, first);
  lock.lock();
  if (!written) return absl::UnavailableError("");
  news.wait_for(lock, absl::ToChronoNanoseconds(kConnectPatience), [this] { return stop || ended || !heard.empty(); });
  if (stop) return absl::CancelledError("stopped");
  if (heard.empty()) return ended ? absl::UnavailableError("") : absl::DeadlineExceededError("it says no word");
  if (!heard.front().has_welcome()) return absl::InternalError("it began with something else than Welcome");
  const wire::Welcome welcome = heard.front().welcome();
  PopHeard();
  if (welcome.send_definitions()) {
    lock.unlock();
    definitions = options.define_again();
    lock.lock();
  }
  return delivery.OnWelcome(options.run, welcome);
}

void Client::Impl::PopHeard() {
  heard_bytes -= heard.front().SpaceUsedLong();
  heard.pop_front();
  news.notify_all();
}

absl::Status Client::Impl::TakeNews(std::unique_lock<std::mutex>& lock, wire::Definitions& definitions) {
  bool define = false;
  for (; !heard.empty(); PopHeard()) {
    if (heard.front().has_drains() && options.drains) options.drains(heard.front().drains());
    if (heard.front().has_ring() && options.ring.ask) {
      ring_news = true;
      options.ring.ask(heard.front().ring());
    }
    if (!heard.front().has_ack()) continue;  // a later release may say more
    const absl::StatusOr<bool> wanted = delivery.OnAck(heard.front().ack(), SteadyNow());
    if (!wanted.ok()) return wanted.status();
    define = define || *wanted;
  }
  if (!define) return absl::OkStatus();
  lock.unlock();
  wire::Definitions all = options.define_again();
  lock.lock();
  definitions = std::move(all);
  return absl::OkStatus();
}

// One message of the ring at most: events and detail go before the next. True: there was one.
absl::StatusOr<bool> Client::Impl::SendRing(Stream& stream, std::unique_lock<std::mutex>& lock) {
  if (!std::exchange(ring_news, false) || !options.ring.next) return false;
  lock.unlock();
  std::optional<wire::RingAnswer> answer = options.ring.next();
  bool written = true;
  if (answer.has_value()) {
    wire::ToFleet message;
    *message.mutable_ring() = *std::move(answer);
    written = Write(stream, message);
    answer.emplace();
  }
  lock.lock();
  if (!written) return absl::UnavailableError("");
  ring_news |= answer.has_value();
  return answer.has_value();
}

absl::Status Client::Impl::Talk(Stream& stream, std::unique_lock<std::mutex>& lock, const std::string& to) {
  delivery.Begin(SteadyNow());
  report.reset();
  if (options.ring.begin) options.ring.begin();
  wire::Definitions definitions;
  if (absl::Status status = Welcomed(stream, lock, definitions); !status.ok()) return status;
  endpoint = to;
  ++connects;
  lock.unlock();
  Tell(absl::StrFormat("connected to the fleet service at %s", to), false);
  lock.lock();
  while (true) {
    if (stop) return absl::CancelledError("stopped");
    if (ended) return absl::UnavailableError("");
    if (absl::Status status = TakeNews(lock, definitions); !status.ok()) return status;
    TellRefusals(lock);
    const absl::Time now = SteadyNow();
    if (delivery.Stuck(now)) return absl::DeadlineExceededError("it acknowledges nothing");
    appended = false;
    absl::StatusOr<std::vector<wire::Batch>> batches = delivery.Next(now, options.run, &definitions);
    if (!batches.ok()) return batches.status();
    std::optional<wire::DrainReport> drains;
    drains.swap(report);
    lock.unlock();
    if (drains.has_value()) {
      wire::ToFleet message;
      *message.mutable_drains() = *std::move(drains);
      if (!Write(stream, message)) {
        lock.lock();
        return absl::UnavailableError("");
      }
    }
    for (wire::Batch& batch : *batches) {
      wire::ToFleet message;
      *message.mutable_batch() = std::move(batch);
      if (Write(stream, message)) continue;
      lock.lock();
      return absl::UnavailableError("");
    }
    lock.lock();
    may_say += 2 * static_cast<double>(batches->size());
    if (now > expired_at + kExpirePeriod) {
      expired_at = now;
      if (absl::Status status = spool->Expire(absl::Now()); !status.ok()) return status;
    }
    if (!batches->empty()) continue;
    if (const absl::StatusOr<bool> sent = SendRing(stream, lock); !sent.ok() || *sent) {
      if (!sent.ok()) return sent.status();
      continue;
    }
    const absl::Time paused = delivery.PausedUntil();
    const absl::Duration wait = paused > now ? std::min(paused - now, kMostWait) : kMostWait;
    news.wait_for(lock, absl::ToChronoNanoseconds(wait),
                  [this] { return stop || ended || appended || ring_news || report.has_value() || !heard.empty(); });
  }
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<Client> Client::Start(ClientOptions options, std::unique_ptr<Spool> spool) {
  std::unique_ptr<Client> client(new Client(std::make_unique<Impl>(std::move(options), std::move(spool))));
  client->impl_->thread = std::thread([impl = client->impl_.get()] { impl->Run(); });
  return client;
}

Client::~Client() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
    if (impl_->context != nullptr) impl_->context->TryCancel();
    impl_->news.notify_all();
  }
  impl_->thread.join();
}

absl::Status Client::Append(const wire::Batch& batch, Kind kind) {
  const std::string bytes = batch.SerializeAsString();
  const std::lock_guard lock(impl_->mutex);
  impl_->LookAtWrites();
  absl::Status status = impl_->spool->Append(kind, batch.run(), batch.sequence(), bytes, absl::Now());
  impl_->appended = true;
  impl_->news.notify_all();
  return status;
}

void Client::Report(wire::DrainReport report) {
  const std::lock_guard lock(impl_->mutex);
  impl_->report = std::move(report);
  impl_->news.notify_all();
}

void Client::Wake() {
  const std::lock_guard lock(impl_->mutex);
  impl_->ring_news = true;
  impl_->news.notify_all();
}

ClientState Client::state() const {
  const std::lock_guard lock(impl_->mutex);
  return {.endpoint = impl_->endpoint, .connects = impl_->connects, .spool = impl_->spool->state()};
}

}  // namespace cw::uplink
