// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/verbs_host.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "userspace/probe_verbs/verbs_transport.h"

namespace cw::probe_verbs {
namespace {

constexpr int kHellosPerWake = 64;

}  // namespace

VerbsHost::VerbsHost(const HostOptions& options, const dataplane::ProgramRunner& runner, const probe::KeyRing* keys)
    : options_(options), runner_(runner), keys_(keys), book_(std::make_shared<PeerBook>()) {}

VerbsHost::~VerbsHost() = default;

absl::Status VerbsHost::OpenNic(const EndpointOptions& options) {
  absl::StatusOr<std::unique_ptr<UdEndpoint>> endpoint = UdEndpoint::Open(options);
  if (!endpoint.ok()) return endpoint.status();
  absl::StatusOr<HelloSocket> socket = HelloSocket::Open(options.address, options.ifindex, options_.hello_port);
  if (!socket.ok()) return socket.status();
  std::shared_ptr<UdEndpoint> shared = *std::move(endpoint);
  auto transport = std::make_shared<VerbsTransport>(shared, book_, runner_);
  nics_.push_back({options.ifindex, std::move(shared), std::move(transport), *std::move(socket)});
  return absl::OkStatus();
}

absl::Status VerbsHost::Start() {
  if (nics_.empty()) return absl::OkStatus();
  std::vector<UdEndpoint*> endpoints;
  for (const Nic& nic : nics_) endpoints.push_back(nic.endpoint.get());
  absl::StatusOr<std::unique_ptr<Responder>> responder =
      Responder::Start(options_.responder, runner_, std::move(endpoints), book_.get());
  if (!responder.ok()) return responder.status();
  responder_ = *std::move(responder);
  return absl::OkStatus();
}

std::vector<int> VerbsHost::fds() const {
  std::vector<int> fds;
  for (const Nic& nic : nics_) fds.push_back(nic.socket.fd());
  return fds;
}

std::shared_ptr<probe::Transport> VerbsHost::TransportOf(uint32_t ifindex) const {
  for (const Nic& nic : nics_) {
    if (nic.ifindex == ifindex) return nic.transport;
  }
  return nullptr;
}

const UdEndpoint* VerbsHost::EndpointOf(uint32_t ifindex) const {
  for (const Nic& nic : nics_) {
    if (nic.ifindex == ifindex) return nic.endpoint.get();
  }
  return nullptr;
}

void VerbsHost::SetPairs(const std::vector<PairKey>& pairs) {
  std::vector<PairKey> ours;
  for (const PairKey& pair : pairs) {
    for (const Nic& nic : nics_) {
      if (nic.endpoint->address() == pair.local) ours.push_back(pair);
    }
  }
  book_->SetPairs(ours);
}

HelloBytes VerbsHost::Encode(const Hello& hello) const {
  cw_pair_keys keys = keys_->Derive(hello.from, hello.to);
  const auto wipe = absl::MakeCleanup([&keys] { probe::WipeKeys(&keys); });
  return EncodeHello(hello, keys);
}

void VerbsHost::OnHello(Nic& nic, const HelloSocket::Incoming& in) {
  const std::optional<Hello> peeked = PeekHello(in.bytes);
  const PairKey pair = {.local = nic.endpoint->address(), .remote = in.from};
  std::optional<Hello> hello;
  if (peeked && peeked->from == in.from && peeked->to == pair.local && book_->Has(pair)) {
    cw_pair_keys keys = keys_->Derive(pair.local, pair.remote);
    hello = DecodeHello(in.bytes, keys);
    probe::WipeKeys(&keys);
  }
  if (!hello) {
    ++hellos_refused_;
    return;
  }
  if (hello->type == Hello::Type::kAnswer) {
    book_->Answered(pair, hello->nonce, hello->qpn);
    return;
  }
  nic.socket.Send(in.from, Encode({.type = Hello::Type::kAnswer,
                                   .nonce = hello->nonce,
                                   .qpn = nic.endpoint->qpn(),
                                   .from = pair.local,
                                   .to = pair.remote}));
}

void VerbsHost::OnReadable() {
  for (Nic& nic : nics_) {
    for (int i = 0; i < kHellosPerWake; ++i) {
      const std::optional<HelloSocket::Incoming> in = nic.socket.Receive();
      if (!in) break;
      OnHello(nic, *in);
    }
  }
}

void VerbsHost::Tick(int64_t now_ns) {
  const auto random = [this] { return uint64_t{random_()} << 32 | random_(); };
  for (const PeerBook::Question& question : book_->Due(now_ns, random)) {
    for (const Nic& nic : nics_) {
      if (nic.endpoint->address() != question.pair.local) continue;
      nic.socket.Send(question.pair.remote, Encode({.type = Hello::Type::kAsk,
                                                    .nonce = question.nonce,
                                                    .qpn = nic.endpoint->qpn(),
                                                    .from = question.pair.local,
                                                    .to = question.pair.remote}));
    }
  }
}

}  // namespace cw::probe_verbs
