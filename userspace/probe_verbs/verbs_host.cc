// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/verbs_host.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "spdlog/spdlog.h"
#include "userspace/probe_verbs/per_peer_transport.h"
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
  nics_.push_back({options.ifindex, std::move(shared), nullptr, std::move(transport), *std::move(socket)});
  return absl::OkStatus();
}

absl::Status VerbsHost::OpenKernelNic(uint32_t ifindex, const Addr& address) {
  absl::StatusOr<std::shared_ptr<probe::RawSocket>> raw = probe::RawSocket::Open(static_cast<int>(ifindex));
  if (!raw.ok()) return raw.status();
  absl::StatusOr<std::unique_ptr<PacketEndpoint>> packets = PacketEndpoint::Open(ifindex, address, *raw);
  if (!packets.ok()) return packets.status();
  absl::StatusOr<HelloSocket> socket = HelloSocket::Open(address, ifindex, options_.hello_port);
  if (!socket.ok()) return socket.status();
  PacketEndpoint* const endpoint = packets->get();
  std::shared_ptr<UdEndpoint> shared = *std::move(packets);
  auto transport = std::make_shared<PerPeerTransport>(*std::move(raw), shared, book_, runner_);
  nics_.push_back({ifindex, std::move(shared), endpoint, std::move(transport), *std::move(socket)});
  return absl::OkStatus();
}

bool VerbsHost::AnyByVerbs() const {
  return std::any_of(nics_.begin(), nics_.end(), [](const Nic& nic) { return nic.packets == nullptr; });
}

absl::Status VerbsHost::Start() {
  if (nics_.empty()) return absl::OkStatus();
  std::vector<UdEndpoint*> endpoints;
  for (const Nic& nic : nics_) endpoints.push_back(nic.endpoint.get());
  ResponderOptions options = options_.responder;
  options.keep_rights = AnyByVerbs();
  options.busy = options.busy && AnyByVerbs();
  absl::StatusOr<std::unique_ptr<Responder>> responder =
      Responder::Start(options, runner_, std::move(endpoints), book_.get());
  if (!responder.ok()) return responder.status();
  responder_ = *std::move(responder);
  return absl::OkStatus();
}

std::vector<int> VerbsHost::fds() const {
  std::vector<int> fds;
  for (const Nic& nic : nics_) fds.push_back(nic.socket.fd());
  return fds;
}

const VerbsHost::Nic* VerbsHost::NicOf(uint32_t ifindex) const {
  const auto it = std::find_if(nics_.begin(), nics_.end(), [&](const Nic& nic) { return nic.ifindex == ifindex; });
  return it == nics_.end() ? nullptr : &*it;
}

std::shared_ptr<probe::Transport> VerbsHost::TransportOf(uint32_t ifindex) const {
  const Nic* nic = NicOf(ifindex);
  return nic == nullptr ? nullptr : nic->transport;
}

const UdEndpoint* VerbsHost::EndpointOf(uint32_t ifindex) const {
  const Nic* nic = NicOf(ifindex);
  return nic == nullptr || nic->packets != nullptr ? nullptr : nic->endpoint.get();
}

uint32_t VerbsHost::PeersByVerbs(uint32_t ifindex) const {
  const Nic* nic = NicOf(ifindex);
  return nic == nullptr ? 0 : book_->KnownFrom(nic->endpoint->address());
}

void VerbsHost::SetPairs(const std::vector<PairKey>& pairs) {
  std::vector<PairKey> by_verbs, by_kernel;
  for (const PairKey& pair : pairs) {
    for (const Nic& nic : nics_) {
      if (nic.endpoint->address() == pair.local) (nic.packets == nullptr ? by_verbs : by_kernel).push_back(pair);
    }
  }
  book_->SetPairs(by_verbs, by_kernel);
}

// Where peers have queue pairs, and there only.
void VerbsHost::ListenWhereNeeded() {
  for (const Nic& nic : nics_) {
    if (nic.packets == nullptr) continue;
    const bool needed = book_->known() != 0 && book_->KnownFrom(nic.endpoint->address()) != 0;
    if (absl::Status s = nic.packets->Listen(needed); !s.ok()) spdlog::warn("{}", s.ToString());
  }
}

HelloBytes VerbsHost::Encode(const Hello& hello) const {
  cw_pair_keys keys = keys_->Derive(hello.from, hello.to);
  const auto wipe = absl::MakeCleanup([&keys] { probe::WipeKeys(&keys); });
  return EncodeHello(hello, keys);
}

void VerbsHost::OnHello(Nic& nic, const HelloSocket::Incoming& in, int64_t now_ns) {
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
    ListenWhereNeeded();
    return;
  }
  book_->WasAsked(pair, now_ns);
  nic.socket.Send(in.from, Encode({.type = Hello::Type::kAnswer,
                                   .nonce = hello->nonce,
                                   .qpn = nic.endpoint->qpn(),
                                   .from = pair.local,
                                   .to = pair.remote}));
}

void VerbsHost::OnReadable(int64_t now_ns) {
  for (Nic& nic : nics_) {
    for (int i = 0; i < kHellosPerWake; ++i) {
      const std::optional<HelloSocket::Incoming> in = nic.socket.Receive();
      if (!in) break;
      OnHello(nic, *in, now_ns);
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
  ListenWhereNeeded();
}

}  // namespace cw::probe_verbs
