// SPDX-License-Identifier: Apache-2.0
// cw_vm_run: runs one command in a machine with a distribution's kernel, for example the tests of the bpf rung:
//
//   cw_vm_run --file build/release/tests/bpf/cw_dataplane_tests=/test '/test --gtest_brief=1'
//
// Prints the command's output and ends with its exit code; 125 when the machine could not be had.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/vm/image.h"
#include "tests/vm/rig.h"

namespace {

int Fail(const absl::Status& status) {
  std::cerr << "cw_vm_run: " << status.message() << "\n";
  return 125;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs one command in a virtual machine with a distribution's kernel.", "cw_vm_run");
  cw::vm::ImageOptions options;
  std::vector<std::string> files;
  std::string command;
  cw::vm::VmConfig config{.name = "run", .nics = {}, .rxe_device = "", .memory_mib = 1024, .log_dir = ""};
  double timeout_s = 300;
  app.add_option("--kernel", options.kernel, "6.1, 6.12, or a Debian kernel package")->capture_default_str();
  app.add_option("--file", files, "HOST_FILE=GUEST_PATH to put into the machine; programs bring their libraries");
  app.add_option("--memory", config.memory_mib, "MiB")->capture_default_str();
  app.add_option("--log-dir", config.log_dir, "Existing folder for run.console and run.qemu");
  app.add_option("--timeout", timeout_s, "Seconds for the command")->capture_default_str();
  app.add_option("command", command, "A shell line")->required();
  CLI11_PARSE(app, argc, argv);
  for (const std::string& pair : files) {
    std::pair<std::string, std::string> names = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    options.files.push_back(names);
  }

  auto image = cw::vm::Image::Build(options);
  if (!image.ok()) return Fail(image.status());
  auto machine = cw::vm::Vm::Boot(*image, config);
  if (!machine.ok()) return Fail(machine.status());
  absl::Status ready = (*machine)->WaitReady(absl::Seconds(120));
  if (!ready.ok()) return Fail(ready);
  auto result = (*machine)->Exec(command, absl::Seconds(timeout_s));
  if (!result.ok()) return Fail(result.status());
  std::cout << result->output;
  return result->exit_code;
}
