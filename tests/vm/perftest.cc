// SPDX-License-Identifier: Apache-2.0
#include "tests/vm/perftest.h"

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace cw::vm {
namespace {

// The report's line has five numbers: bytes, iterations, peak, average, message rate.
absl::StatusOr<PerftestResult> ParseReport(const std::string& output) {
  size_t head = output.rfind("BW average[MB/sec]");
  if (head == std::string::npos) return absl::InternalError("perftest printed no report: " + output);
  std::istringstream line(output.substr(output.find('\n', head) + 1));
  PerftestResult result;
  double peak;
  if (!(line >> result.message_bytes >> result.messages >> peak >> result.average_mb_per_s)) {
    return absl::InternalError("unreadable report: " + output);
  }
  result.output = output;
  return result;
}

// Waits until the alarm is taken (bit 13 of what pends) and soft-RoCE has carried so much since that messages were
// counted, however little of the machine perftest gets; half a minute at most.
constexpr char kStepTaken[] =
    "pending() { for p in $(pidof ib_write_bw ib_send_bw ib_read_bw); do "
    "set=$(sed -n 's/^ShdPnd:.*\\(....\\)$/0x\\1/p' /proc/$p/status); [ $((${set:-0} >> 13 & 1)) = 1 ] && return 0; "
    "done; return 1; }; cd /sys/class/infiniband/rxe0/ports/1/hw_counters; "
    "packets() { echo $(($(cat sent_pkts) + $(cat rcvd_pkts))); }; "
    "i=0; while pending && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done; begun=$(packets); "
    "while [ $(($(packets) - begun)) -lt 2000 ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done";

}  // namespace

absl::StatusOr<std::unique_ptr<Perftest>> Perftest::Start(Rack& rack, const PerftestOptions& options) {
  std::unique_ptr<Perftest> run(new Perftest(rack));
  // Nice, because it polls: on a machine's only processor every other program would wait for it.
  std::string line = absl::StrFormat("renice -n 19 -p $$ && exec %s -d rxe0 -m 4096 -F -p %d %s", options.tool,
                                     options.port, options.arguments);
  auto server = rack.machine(1).Start(line);
  if (!server.ok()) return server.status();
  run->server_ = *std::move(server);
  // Connecting to it to see whether it listens would be taken for the client.
  auto listens = rack.machine(1).Run(absl::StrFormat("for i in $(seq 600); do grep -q ':%04X .* 0A ' /proc/net/tcp "
                                                     "/proc/net/tcp6 && exit 0; sleep 0.1; done; exit 1",
                                                     options.port),
                                     absl::Seconds(90));
  if (!listens.ok()) return absl::InternalError("perftest's server does not listen: " + run->server_->output());
  auto client = rack.machine(0).Start(line + " " + Rack::MgmtAddress(1));
  if (!client.ok()) return client.status();
  run->client_ = *std::move(client);
  return run;
}

// For the message when a run does not end: is it perftest that waits, or the kernel?
std::string Perftest::WhereItHangs() {
  std::string text;
  for (int i = 0; i < 2; i++) {
    auto tasks = rack_.machine(i).Run(
        "for p in $(pidof ib_write_bw ib_send_bw ib_read_bw); do cat /proc/$p/wchan /proc/$p/stack; "
        "grep -E 'State|ctxt' /proc/$p/status; done; rdma resource show qp; "
        "grep . /sys/class/infiniband/rxe0/ports/1/hw_counters/*; cat /proc/net/tcp; dmesg | tail -5");
    absl::StrAppend(&text, "\nmachine ", i, ":\n", tasks.ok() ? *tasks : std::string(tasks.status().message()));
  }
  return text;
}

absl::StatusOr<PerftestResult> Perftest::Wait(absl::Duration timeout) {
  auto client = client_->Wait(timeout);
  auto server = server_->Wait(absl::Seconds(20));
  if (!client.ok() || !server.ok()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "client: ", client.ok() ? "ended" : std::string(client.status().message()),
        "\nserver: ", server.ok() ? server->output : std::string(server.status().message()), WhereItHangs()));
  }
  if (client->exit_code != 0 || server->exit_code != 0) {
    return absl::InternalError(absl::StrFormat("client ended with %d: %s\nserver ended with %d: %s", client->exit_code,
                                               client->output, server->exit_code, server->output));
  }
  return ParseReport(client->output);
}

// Its alarms lead from the warm-up through the measurement to the end, one step each. Before it catches them (bit 13 of
// its mask), the first one would kill it.
absl::StatusOr<PerftestResult> Perftest::Finish(absl::Duration timeout) {
  if (!running()) return Wait(timeout);
  auto begun = rack_.machine(0).Run(
      "for i in $(seq 300); do for p in $(pidof ib_write_bw ib_send_bw ib_read_bw); do "
      "caught=$(sed -n 's/^SigCgt:.*\\(....\\)$/0x\\1/p' /proc/$p/status); [ $((${caught:-0} >> 13 & 1)) = 1 ] && exit "
      "0; "
      "done; sleep 0.1; done; exit 1");
  if (!begun.ok() && running())
    return absl::InternalError("perftest does not begin: " + client_->output() + WhereItHangs());
  for (int step = 0; step < 3 && running(); ++step) {
    client_->Signal(SIGALRM);
    if (step < 2) (void)rack_.machine(0).Run(kStepTaken);
  }
  return Wait(timeout);
}

absl::StatusOr<std::vector<QueuePair>> QueuePairs(Vm& machine, const std::string& type) {
  auto text = machine.Run("rdma -j resource show qp");
  if (!text.ok()) return text.status();
  auto list = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return absl::InternalError("rdma printed no JSON list: " + *text);
  std::vector<QueuePair> pairs;
  for (const auto& item : list) {
    if (item.value("type", "") != type) continue;
    pairs.push_back({item.value("lqpn", 0u), item.value("rqpn", 0u), item.value("pid", 0), item.value("comm", ""),
                     item.value("state", "")});
  }
  return pairs;
}

absl::StatusOr<std::vector<QueuePair>> WaitForQueuePairs(Vm& machine, size_t count, absl::Duration timeout,
                                                         const std::string& type) {
  for (absl::Time end = absl::Now() + timeout; absl::Now() < end; absl::SleepFor(absl::Milliseconds(200))) {
    auto pairs = QueuePairs(machine, type);
    if (!pairs.ok()) return pairs.status();
    size_t ready = 0;
    for (const QueuePair& pair : *pairs) ready += pair.state == "RTS";
    if (ready >= count) return pairs;
  }
  return absl::DeadlineExceededError(absl::StrFormat("fewer than %d queue pairs are ready to send", count));
}

absl::StatusOr<std::map<std::string, uint64_t>> RxeCounters(Vm& machine) {
  auto text = machine.Run("cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *");
  if (!text.ok()) return text.status();
  std::map<std::string, uint64_t> counters;
  for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(':', 1));
    uint64_t value;
    if (!absl::SimpleAtoi(field.second, &value)) return absl::InternalError("unreadable counter: " + std::string(line));
    counters[field.first] = value;
  }
  return counters;
}

}  // namespace cw::vm
