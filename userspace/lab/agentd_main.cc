// SPDX-License-Identifier: Apache-2.0
// The agent with a hidden clock: cwagentd, but its time, in the BPF programs and in userspace, carries a known error,
// when hidden_clock.json lies beside the configuration.
#include <bpf/bpf.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "maps/names.h"
#include "userspace/agent/daemon.h"
#include "userspace/lab/hidden_clock.h"

namespace cw::lab {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<nlohmann::json> ReadObject(const fs::path& file) {
  std::ifstream stream(file);
  nlohmann::json json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(file.string(), " is not a JSON object"));
  return json;
}

HiddenClockSpec SpecOf(const nlohmann::json& json) {
  HiddenClockSpec spec{.offset_ns = json.value("offset_ns", int64_t{0}),
                       .drift_ppm = json.value("drift_ppm", 0.0),
                       .wander_ppm = json.value("wander_ppm", 0.0),
                       .segment_s = json.value("segment_s", 10.0),
                       .step_ns = json.value("step_ns", int64_t{0}),
                       .seed = json.value("seed", 1u)};
  if (json.contains("tai_less_monotonic_ns"))
    spec.tai_less_monotonic_ns = json.value("tai_less_monotonic_ns", int64_t{0});
  return spec;
}

// The clock of an instance is pinned, so that a restarted agent finds the same time.
absl::StatusOr<cw_lab_clock> PinClock(const std::string& pin, const HiddenClockSpec& spec) {
  const uint32_t zero = 0;
  int fd = bpf_obj_get(pin.c_str());
  cw_lab_clock clock{};
  if (fd >= 0) {
    const int error = bpf_map_lookup_elem(fd, &zero, &clock) == 0 ? 0 : errno;
    close(fd);
    if (error != 0) return absl::ErrnoToStatus(error, "cannot read the hidden clock");
    return clock;
  }
  fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, CW_MAP_LAB_CLOCK, sizeof(uint32_t), sizeof(cw_lab_clock), 1, nullptr);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make the hidden clock's map");
  clock = MakeHiddenClock(spec, static_cast<uint64_t>(MonotonicClock().NowNs()));
  int error = bpf_map_update_elem(fd, &zero, &clock, BPF_ANY);
  if (error == 0) error = bpf_obj_pin(fd, pin.c_str());
  close(fd);
  if (error != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot pin the hidden clock at ", pin));
  return clock;
}

// A kernel clock that is disciplined to 10 us and stands where the lab puts it.
agent::KernelTime KernelOf(const HiddenClockSpec& spec) {
  if (!spec.tai_less_monotonic_ns) return agent::KernelTime::Real();
  return {.adjtimex =
              [](timex* state) {
                state->maxerror = 10;
                state->tai = 37;
                return TIME_OK;
              },
          .tai_ns = [offset_ns = *spec.tai_less_monotonic_ns] { return MonotonicClock().NowNs() + offset_ns; }};
}

absl::Status MakeFolderOf(const std::string& pin) {
  std::error_code error;
  fs::create_directories(fs::path(pin).parent_path(), error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make the folder of ", pin, ": ", error.message(), "; is the BPF file system mounted?"));
}

// Simulated NICs, when nic_clock.json lies beside the configuration. The lab's are veth devices: a program that is
// bound to one has crashed Linux.
absl::Status AddNic(const config::Config& config, const fs::path& folder, agent::TimeSource& source) {
  const fs::path file = folder / "nic_clock.json";
  if (!fs::exists(file)) {
    for (const config::NicConfig& nic : config.nics) {
      if (nic.rx_stamps == config::RxStamps::kHardware)
        return absl::InvalidArgumentError(
            absl::StrCat(nic.name, ": the lab has hardware stamps of simulated NICs only"));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<nlohmann::json> json = ReadObject(file);
  if (!json.ok()) return json.status();
  NicClockSpec spec{.clock = SpecOf(*json)};
  spec.read_ns = json->value("read_ns", spec.read_ns);
  spec.jitter_ns = json->value("jitter_ns", spec.jitter_ns);
  spec.noise_ns = json->value("noise_ns", spec.noise_ns);
  source.lab_nic = NicClockPin(config.instance);
  if (absl::Status status = MakeFolderOf(source.lab_nic); !status.ok()) return status;
  absl::StatusOr<cw_lab_clock> nic = PinClock(source.lab_nic, spec.clock);
  if (!nic.ok()) return nic.status();
  source.lab_nic_clock = [nic = *nic, spec](std::shared_ptr<const Clock> local) {
    return std::make_unique<SimulatedNicClock>(nic, spec, std::move(local));
  };
  return absl::OkStatus();
}

absl::StatusOr<agent::TimeSource> LabTime(const config::Config& config, const std::string& config_path) {
  const fs::path folder = fs::path(config_path).parent_path();
  agent::TimeSource source{.clock = std::make_shared<MonotonicClock>()};
  if (absl::Status status = AddNic(config, folder, source); !status.ok()) return status;
  const fs::path file = folder / "hidden_clock.json";
  if (!fs::exists(file)) return source;
  absl::StatusOr<nlohmann::json> json = ReadObject(file);
  if (!json.ok()) return json.status();
  const HiddenClockSpec spec = SpecOf(*json);
  source.lab_clock = HiddenClockPin(config.instance);
  if (absl::Status status = MakeFolderOf(source.lab_clock); !status.ok()) return status;
  absl::StatusOr<cw_lab_clock> clock = PinClock(source.lab_clock, spec);
  if (!clock.ok()) return clock.status();
  source.clock = std::make_shared<HiddenClock>(*clock);
  source.kernel = KernelOf(spec);
  return source;
}

}  // namespace
}  // namespace cw::lab

int main(int argc, char** argv) { return cw::agent::DaemonMain(argc, argv, "cwlab-agentd", cw::lab::LabTime); }
