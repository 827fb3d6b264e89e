# SPDX-License-Identifier: Apache-2.0
# The front door. Each target installs just the distribution packages that it needs (packaging/deps/), builds and runs.
.PHONY: all build demo demo-fleet demo-rdma test nightly unit bpf lab vm packaging attacks asan fuzz bench deb rpm soak soak-liveness format format-check tidy clean help
.DEFAULT_GOAL := help

DEPS := packaging/deps/install.sh
BUILD := build/release
BENCHES := dataplane agent failover contention clock cwclock verbs rdma profiler restarts flood spool fleet_store fleet
export JOBS ?= $(shell nproc)

help:
	@echo "make demo       the main job on a lab fabric: colliding queue pairs spread, a silently dead spine left; before and after"
	@echo "make demo-fleet two racks, an agent on each host, one cwfleetd: four faults, and what it finds after how long"
	@echo "make demo-rdma  the same cut and a move on real soft-RoCE in virtual machines"
	@echo "make test       every test: unit, bpf, lab, vm, packages, fuzzing"
	@echo "make nightly    what takes hours: soaks, other kernels, packages built twice, fuzzing (NIGHTLY=\"STEP ...\" for some; docs/nightly.md)"
	@echo "make bench      every benchmark, or bench-dataplane, bench-agent, bench-failover, bench-contention, bench-clock, bench-cwclock, bench-verbs, bench-rdma, bench-profiler, bench-restarts, bench-flood, bench-spool, bench-fleet_store, bench-fleet"
	@echo "make soak       30 minutes (SOAK_MINUTES) of full links, with queue pairs and readers that come and go: does anything grow?"
	@echo "make bench-curve     how fast a dead path is left against how often a healthy one is called dead, for several settings"
	@echo "make soak-liveness   30 minutes (SOAK_MINUTES) of a loaded, starved lab: how often a whole path is called dead"
	@echo "make build      the programs, in $(BUILD)"
	@echo "make deb        the Debian packages, in build/packages; make rpm: rpm packages"
	@echo "make unit|bpf|lab|vm|packaging|attacks|asan|fuzz   one rung of the tests"

deps-%:
	@$(DEPS) $*

build: deps-build
	@cmake/build.sh release cw_programs

demo: deps-build deps-demo
	@cmake/build.sh release cwlab cwlab-agentd cwctl
	@$(BUILD)/userspace/lab/cwlab demo --out build/demo

demo-fleet: deps-build deps-demo
	@cmake/build.sh release cwlab cwlab-agentd cwctl cwfleetd nccl-profiler-cwfabric
	@PATH="$(CURDIR)/$(BUILD)/userspace/fleet/main:$(CURDIR)/$(BUILD)/cli:$$PATH" $(BUILD)/userspace/lab/cwlab demo-fleet --out build/demo

demo-rdma: deps-build deps-vm
	@cmake/build.sh release cw_vm_demo cwagentd cwctl
	@$(BUILD)/tests/vm/cw_vm_demo

test: deps-build deps-test deps-vm deps-bench deps-deb
	@tests/run.sh unit bpf lab vm packaging fuzz

unit bpf lab asan fuzz: deps-build deps-test deps-bench
	@tests/run.sh $@

vm: deps-build deps-test deps-vm
	@tests/run.sh $@

packaging attacks: deps-build deps-test deps-vm deps-deb
	@tests/run.sh $@

# Steps by NIGHTLY="asan fuzz"; all if not given. The result: docs/nightly.md.
nightly: deps-build deps-test deps-vm deps-bench deps-deb deps-rpm
	@tests/nightly.sh $(NIGHTLY)

bench: $(addprefix bench-,$(BENCHES))
	@$(BUILD)/tests/bench/cw_bench_table build/bench/*.json

# $(1): the program without its prefix, which is the result's name, too.
define run_bench
	@cmake/build.sh release cw_bench_$(1) cw_bench_table cwlab-agentd cwctl
	@mkdir -p build/bench
	@PATH="$(CURDIR)/$(BUILD)/userspace/lab:$$PATH" $(BUILD)/tests/bench/cw_bench_$(1) --out build/bench/$(1).json
endef

bench-%: deps-build deps-bench
	$(call run_bench,$*)

bench-clock_vm bench-rdma: deps-vm

# In the lab, then between two virtual machines: build/bench/clock.json and clock_vm.json.
bench-clock: deps-build deps-bench deps-vm
	$(call run_bench,clock)
	$(call run_bench,clock_vm)

# Recovery against wrong deaths, for the settings of BENCH_POINTS: build/bench/curve.json. Too long for `make bench`.
bench-curve: deps-build deps-bench
	$(call run_bench,curve)

# Wrong verdicts over SOAK_MINUTES (30) of load, starvation, stopped agents and dying peers: build/bench/liveness_soak.json.
soak-liveness: deps-build deps-bench
	$(call run_bench,liveness_soak)

# What agents hold over SOAK_MINUTES (30) of load: build/bench/soak.json. Fails when something grows, or healthy paths are called dead.
soak: deps-build deps-bench
	$(call run_bench,soak)

deb: deps-build deps-deb
	@packaging/deb.sh build/packages

rpm: deps-build deps-rpm
	@packaging/rpm.sh build/packages

SOURCES := $(shell git ls-files '*.c' '*.h' '*.cc' 2>/dev/null)
format:
	@$(DEPS) format
	clang-format -i $(SOURCES)
format-check:
	@$(DEPS) format
	clang-format --dry-run --Werror $(SOURCES)
tidy: deps-build deps-test deps-bench
	@$(DEPS) format
	@cmake --preset dev -Wno-dev -DCW_FAST=OFF >/dev/null && ninja -C build/dev cw_programs
	run-clang-tidy -quiet -p build/dev $(filter %.cc,$(SOURCES))

clean:
	rm -rf build
