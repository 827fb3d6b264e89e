// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/fleet_prometheus.h"

#include <curl/curl.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "userspace/lab/fabric_process.h"

namespace cw::bench {
namespace {

constexpr char kAddress[] = "127.0.0.1:19090";

void PutVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void PutBytes(int field, const std::string& bytes, std::string& out) {
  PutVarint(static_cast<uint64_t>(field << 3 | 2), out);
  PutVarint(bytes.size(), out);
  out += bytes;
}

}  // namespace

// WriteRequest{1: TimeSeries{1: Label{1: name, 2: value}, 2: Sample{1: double value, 2: int64 ms}}}.
std::string WriteRequest(const std::vector<Series>& series, int64_t time_ms) {
  std::string out;
  for (const Series& each : series) {
    std::string line;
    for (const auto& [name, value] : each.labels) {
      std::string label;
      PutBytes(1, name, label);
      PutBytes(2, value, label);
      PutBytes(1, label, line);
    }
    std::string sample(9, '\x09');
    std::memcpy(sample.data() + 1, &each.value, sizeof each.value);
    sample += '\x10';
    PutVarint(static_cast<uint64_t>(time_ms), sample);
    PutBytes(2, sample, line);
    PutBytes(1, line, out);
  }
  return out;
}

std::string AsSnappy(const std::string& bytes) {
  std::string out;
  PutVarint(bytes.size(), out);
  constexpr size_t kMost = 65536;  // of a literal whose length stands in two bytes
  for (size_t at = 0; at < bytes.size(); at += kMost) {
    const size_t size = std::min(kMost, bytes.size() - at);
    out += static_cast<char>(61 << 2);
    out += static_cast<char>((size - 1) & 0xff);
    out += static_cast<char>((size - 1) >> 8);
    out.append(bytes, at, size);
  }
  return out;
}

struct Prometheus::Impl {
  std::string folder;
  lab::ProcessId process;
  CURL* curl = curl_easy_init();
  curl_slist* headers = nullptr;

  ~Impl() {
    if (process.pid != 0) lab::EndProcess(process, absl::Seconds(20)).IgnoreError();
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
  }
  absl::Status Post(const std::string& body);
};

absl::Status Prometheus::Impl::Post(const std::string& body) {
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  if (const CURLcode code = curl_easy_perform(curl); code != CURLE_OK)
    return absl::UnavailableError(curl_easy_strerror(code));
  long answer = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer);
  return answer / 100 == 2 ? absl::OkStatus() : absl::InternalError(absl::StrCat("Prometheus answers ", answer));
}

absl::StatusOr<std::unique_ptr<Prometheus>> Prometheus::Start(const std::string& folder) {
  auto impl = std::make_unique<Impl>();
  impl->folder = folder;
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/prometheus.yml") << "global: {}\n";
  // Blocks of ten minutes instead of two hours, so that a short run has some.
  const absl::StatusOr<lab::ProcessId> started =
      lab::StartProcess({"prometheus", "--config.file=" + folder + "/prometheus.yml",
                         "--storage.tsdb.path=" + folder + "/data", "--storage.tsdb.min-block-duration=10m",
                         "--storage.tsdb.max-block-duration=10m", "--storage.tsdb.retention.time=10d",
                         "--web.enable-remote-write-receiver", absl::StrCat("--web.listen-address=", kAddress)},
                        folder + "/log");
  if (!started.ok()) return started.status();
  impl->process = *started;
  CURL* const curl = impl->curl;
  impl->headers = curl_slist_append(nullptr, "Content-Encoding: snappy");
  impl->headers = curl_slist_append(impl->headers, "Content-Type: application/x-protobuf");
  impl->headers = curl_slist_append(impl->headers, "X-Prometheus-Remote-Write-Version: 0.1.0");
  curl_easy_setopt(curl, CURLOPT_URL, absl::StrCat("http://", kAddress, "/api/v1/write").c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, impl->headers);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, 60L);
  absl::Status status;
  for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
    status = impl->Post(AsSnappy(""));
    if (status.ok()) return std::unique_ptr<Prometheus>(new Prometheus(std::move(impl)));
    if (!lab::IsAlive(impl->process)) return absl::NotFoundError("prometheus does not run; see " + folder + "/log");
    absl::SleepFor(absl::Milliseconds(50));
  }
  return status;
}

Prometheus::Prometheus(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Prometheus::~Prometheus() = default;

absl::Status Prometheus::Write(const std::vector<Series>& series, int64_t time_ms) {
  return impl_->Post(AsSnappy(WriteRequest(series, time_ms)));
}

pid_t Prometheus::pid() const { return impl_->process.pid; }

double Prometheus::BytesOfASample() const {
  uint64_t bytes = 0, samples = 0;
  std::error_code error;
  for (const auto& block : std::filesystem::directory_iterator(impl_->folder + "/data", error)) {
    std::ifstream meta(block.path() / "meta.json");
    const nlohmann::json facts = nlohmann::json::parse(meta, nullptr, /*allow_exceptions=*/false);
    if (facts.is_discarded()) continue;
    samples += facts["stats"]["numSamples"].get<uint64_t>();
    for (const auto& file : std::filesystem::recursive_directory_iterator(block.path()))
      if (file.is_regular_file()) bytes += file.file_size();
  }
  return samples == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(samples);
}

}  // namespace cw::bench
