// SPDX-License-Identifier: Apache-2.0
//
// A client of an agent, over its socket or over TCP with mutual TLS. One call at a time and object. Unavailable: no
// agent answers; PermissionDenied: the socket may not be opened, the certificate is not taken, or the call needs
// another role; all else comes from the agent as it is.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/agent_api.h"
#include "userspace/api/printable_message.h"
#include "userspace/tls/certificate.h"

namespace cw::api {

struct RemoteAgent {
  std::string server;  // HOST:PORT, the host as the agent's certificate has it
  tls::Files tls;      // the client's own certificate and key, and the authority of agents
};

class Client final : public AgentApi {
 public:
  // Does not connect yet: the first call does. `timeout` holds for each call but Events.
  explicit Client(const std::string& socket_path, absl::Duration timeout = absl::Seconds(5),
                  Words words = Words::kAsSent);
  explicit Client(const RemoteAgent& agent, absl::Duration timeout = absl::Seconds(5), Words words = Words::kAsSent);
  ~Client() override;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // The agent learns who calls by itself, from the socket or the certificate: `caller` is not looked at.
  CW_VERBS(CW_OVERRIDE_VERB)
  // Calls back for each event until the stream ends or the callback returns false. Unavailable when the agent goes.
  absl::Status Events(const v1::EventsRequest& request, const std::function<bool(const v1::Event&)>& each);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::api
