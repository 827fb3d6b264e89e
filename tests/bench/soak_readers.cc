// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/soak_readers.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/unit/http_client.h"
#include "userspace/api/client.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/fabric_process.h"

namespace cw::bench {
namespace {

constexpr absl::Duration kBetween = absl::Milliseconds(250);

}  // namespace

Readers::Readers(const lab::Fabric& fabric, std::string cwctl) : cwctl_(std::move(cwctl)) {
  for (int host = 0; host < fabric.hosts(); ++host) {
    const lab::AgentHost agent = lab::DescribeAgentHost(fabric, host);
    threads_.emplace_back([this, host = Host{agent.socket, agent.run_dir + "/metrics.sock"}] { Loop(host); });
  }
}

Readers::~Readers() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void Readers::Pause() {
  absl::MutexLock lock(&mutex_);
  paused_ = true;
  const auto idle = [this] { return reading_ == 0; };
  mutex_.Await(absl::Condition(&idle));
}

void Readers::Resume() {
  absl::MutexLock lock(&mutex_);
  paused_ = false;
}

Readers::Tally Readers::tally() const {
  absl::MutexLock lock(&mutex_);
  return tally_;
}

void Readers::Loop(const Host& host) {
  for (;; absl::SleepFor(kBetween)) {
    {
      absl::MutexLock lock(&mutex_);
      const auto may = [this] { return stopping_ || !paused_; };
      mutex_.Await(absl::Condition(&may));
      if (stopping_) return;
      ++reading_;
    }
    Round(host);
    absl::MutexLock lock(&mutex_);
    --reading_;
  }
}

void Readers::Note(const std::string& what, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  ++tally_.reads;
  if (status.ok()) return;
  ++tally_.failed;
  tally_.failure = absl::StrCat(what, ": ", std::string(status.message()));
}

void Readers::Round(const Host& host) {
  api::Client client(host.socket);
  Note("Status", client.Status().status());
  Note("Doctor", client.Doctor().status());
  Note("Paths", client.Paths({}).status());
  Note("Links", client.Links({}).status());
  Note("Qps", client.Qps({}).status());
  Note("Counters", client.Counters().status());
  Note("Clock", client.Clock().status());
  Note("Drains", client.Drains().status());
  Note("ListJobs", client.ListJobs({}).status());
  Note("Nics", client.Nics().status());
  api::v1::EventsRequest last;
  last.set_last(50);
  Note("Events", client.Events(last, [](const api::v1::Event&) { return true; }));
  Note("cwctl qps", lab::RunTool({cwctl_, "--socket", host.socket, "--json", "qps"}).status());
  const bool scraped = absl::StartsWith(http::Ask(host.metrics, "GET /metrics"), "HTTP/1.1 200");
  Note("metrics", scraped ? absl::OkStatus() : absl::UnavailableError("no answer"));
}

}  // namespace cw::bench
