# Commands for people. `make demo` and `make test` run the set-up first.

PYTHON := .venv/bin/python
# Work on this machine's kernel needs root: sudo, unless make runs as root.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: help setup environment python kernel modules torch demo demo-host test test-unit test-uml test-netns test-long coverage matrix check mutants benchmarks reproduce reproduce-measured reproduce-there agreement artifact-check image capsule release figures report docs docs-pages docs-packages prose clean
.PHONY: vm-tools browser libfuzzer vm-kernel box test-vagrant

help:
	@echo "make demo            set-up, then Reno against MLTCP: four synthetic jobs, and two ResNet-50 jobs (a minute, no root)"
	@echo "make demo-host       four jobs under virtual time, then on this kernel (root)"
	@echo "make test            set-up and all tests: unit, uml, netns (sudo; SLOW=1: slow tests included)"
	@echo "make test-unit       unit tests (test-uml, test-netns: the other tiers; test-long: hours)"
	@echo "make test-vagrant    box, start, run, and removal of a VM (half an hour without KVM)"
	@echo "make reproduce       all experiments, figures, and report.html, resumable (QUICK=1: a quarter of an hour;"
	@echo "                     PAPER=ltp, FIGURE=tail: one paper or one figure; ON=host, ON=ssh:root@server: another backend;"
	@echo "                     default: a running Vagrant VM if it is fast enough, otherwise user-mode Linux)"
	@echo "make agreement       one experiment under virtual time, on this kernel, and in the VM, compared in the report"
	@echo "make artifact-check  a short run per headline claim of ARTIFACT.md, compared with the expected value (6 minutes)"
	@echo "make figures         figures from existing results (report: figures and report.html)"
	@echo "make setup           environment, transport core, and user-mode Linux kernel"
	@echo "make kernel          user-mode Linux kernel (LINUX_SOURCE=…: custom source)"
	@echo "make modules         congestion controls as modules of the running kernel"
	@echo "make torch           PyTorch, for real training jobs and recording"
	@echo "make box             Vagrant box with its own kernel (BOX=stock: Debian's kernel; vm-tools: packages for it)"
	@echo "make vm-kernel       kernel of the box as Debian packages (LINUX_SOURCE=…: custom source)"
	@echo "make check           linters and format checks of shell, Python, and C"
	@echo "make coverage        unit-test coverage of the packages that only compute"
	@echo "make matrix          unit tests with every Python, runs with every linux-source, 32-bit modules (LINUX_SOURCE=…: custom source)"
	@echo "make mutants         tests against 40 deliberate faults, resumable"
	@echo "make docs            documentation site in build/docs (warnings are errors)"
	@echo "make prose           sentence lengths of each documentation page (fails above the budget)"
	@echo "make image           container image from the wheel (buildah; mmdebstrap without a registry)"
	@echo "make capsule         archive for an offline restore: packages, kernel source, image"
	@echo "make release         wheel, source archive, image, documentation, and checksums in dist/, then the tag (DRY=1: checks only)"
	@echo "make benchmarks      cost per ACK in eBPF, of a start, and of a sample; network set-up time; speed relative to ns-3"
	@echo "make clean           removal of the environment, results, and figures"

# Messages of the set-up, only for `make setup`; other targets run it silently.
asked = $(if $(filter setup,$(MAKECMDGOALS)),echo,:)

environment:
	@$(asked) "looking for system packages, and for Python packages in .venv"
	@tools/setup.sh

# Only Python's packages: enough for figures, and for a machine that only drives others.
python:
	@tools/setup.sh --python

setup: environment
	@$(asked) "building the core of the transports (build/)"
	@$(PYTHON) -m testbed.transports.datagram.native >/dev/null
	@$(asked) "looking for the user-mode Linux kernel (\$${XDG_CACHE_HOME:-~/.cache}/mltcp); building it takes minutes, once"
	@$(PYTHON) -m testbed kernel --if-missing || { [ $$? -eq 3 ] && echo "Continuing without it: --on uml will not work." >&2; }
	@$(asked) "Set-up is done. Next: make demo"

kernel: environment
	$(PYTHON) -m testbed kernel $(if $(LINUX_SOURCE),--linux-source "$(LINUX_SOURCE)")

# The congestion controls as modules of the running kernel (or KERNEL=…/build).
KERNEL ?= /lib/modules/$(shell uname -r)/build
modules:
	mkdir -p build/modules
	cp kernel/*.[ch] kernel/Kbuild build/modules
	$(MAKE) -C $(KERNEL) M="$(CURDIR)/build/modules" modules

# The main experiment of the demo, under virtual time, so that the result is the same on every machine.
MAIN := --topo dumbbell --jobs 4
demo: setup
	$(PYTHON) -m testbed demo
	@echo "make demo-host: the same on this machine's kernel (root)"

demo-host: setup
	$(PYTHON) tools/demo_host.py $(MAIN)

# PyTorch, for real training as a job and for recording; large, so not part of the set-up. The only packages without hashes,
# because the right build of PyTorch depends on the machine's GPU.
torch: environment
	.venv/bin/pip install -qq --disable-pip-version-check --root-user-action=ignore -e '.[torch]'

# Three tiers, each with a closing line; a failed one does not stop the next. They use all cores, except tests marked `alone`, which
# judge a run by a real clock, or load programs under names that are global in the kernel.
CORES := $(shell nproc)
# SLOW=1: also tests marked slow, as in continuous integration.
PYTEST := $(PYTHON) -m pytest $(if $(SLOW),--slow)
SIDE_BY_SIDE := -n $(CORES) --dist loadgroup
# COVERAGE=1: fails, too, if the unit tests cover less of a pure package than pyproject.toml requires.
PURE = $(subst .,/,$(shell $(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['tool']['coverage']['run']['source'])"))
unit_tier = $(PYTEST) tests/unit $(SIDE_BY_SIDE) $(if $(COVERAGE),--cov --cov-report=term \
	$(foreach package,$(PURE),&& $(PYTHON) -m coverage report --include="$(package)/*" --format=total))
uml_tier = $(PYTEST) tests/uml $(SIDE_BY_SIDE)
netns = $(SUDO) env PYTHONDONTWRITEBYTECODE=1 $(PYTEST) -p no:cacheprovider tests/netns
# Tests with namespaces wait more than they compute.
netns_tier = $(netns) -n $(shell expr 2 '*' $(CORES)) --dist loadgroup -m "not alone"
alone_tier = $(netns) -m alone

tiers = @code=0; $(foreach tier,$(1),echo '$($(tier)_tier)'; $($(tier)_tier) || code=1;) exit $$code

test: setup
	$(call tiers,unit uml netns alone)

test-unit: setup
	$(unit_tier)

coverage: setup
	$(MAKE) --no-print-directory test-unit COVERAGE=1 SLOW=1

test-uml: setup
	$(uml_tier)

test-netns: setup
	$(call tiers,netns alone)

# Tests that take hours, for occasional runs: kills at a hundred random moments, properties by thousands of examples.
test-long: setup
	@code=0; \
	$(PYTEST) tests/unit $(SIDE_BY_SIDE) --slow --hypothesis-profile long || code=1; \
	$(uml_tier) -m long || code=1; \
	$(netns) -m long || code=1; \
	exit $$code

# Packages for the VM only (docs/how-to/vm.md).
VM_TOOLS := vagrant vagrant-libvirt libvirt-daemon-system libvirt-clients dnsmasq-base iptables qemu-system-x86 \
	qemu-utils mmdebstrap e2fsprogs fakeroot rsync openssh-client dbus
KERNEL_TOOLS := kmod cpio debhelper dpkg-dev dwarves libelf-dev libssl-dev
vm-tools:
	$(SUDO) apt-get -q update
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends $(VM_TOOLS) $(KERNEL_TOOLS)

# For the test of the report in a browser.
browser:
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends chromium

# clang's runtime for sanitizers and fuzzing, for the tests of the transports' core (60 MB).
libfuzzer:
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends libclang-rt-dev

BOX ?= custom
box: setup
	$(PYTHON) vagrant/box/box.py --kernel $(BOX) $(if $(LINUX_SOURCE),--linux-source "$(LINUX_SOURCE)")

vm-kernel: environment
	$(PYTHON) vagrant/box/vm_kernel.py $(if $(LINUX_SOURCE),--linux-source "$(LINUX_SOURCE)")

test-vagrant: environment
	$(SUDO) $(PYTHON) -m pytest -m vagrant tests/vagrant

check: environment
	.venv/bin/shellcheck tools/*.sh vagrant/*.sh
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/vulture
	.venv/bin/lint-imports --no-cache
	.venv/bin/clang-format --dry-run -Werror testbed/transports/datagram/native/*.[ch] tests/unit/transports/*.[ch]

# The documentation site. Its packages have hashes, too, and are installed once.
docs-packages: environment
	@cmp -s tools/docs-requirements.txt .venv/docs-installed || { echo "installing packages for the documentation into .venv" && \
		.venv/bin/pip install -qq --disable-pip-version-check --root-user-action=ignore --require-hashes --no-deps --only-binary :all: \
			-r tools/docs-requirements.txt && cp tools/docs-requirements.txt .venv/docs-installed; }

docs: docs-pages docs-packages
	.venv/bin/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

prose: docs-packages
	$(PYTHON) -m tools.prose

# Pages generated from the code; a test compares them.
docs-pages: environment
	$(PYTHON) tools/draw_architecture.py
	$(PYTHON) -m tools.reference_pages

image: setup
	$(PYTHON) -m tools.image

capsule: setup
	$(PYTHON) -m tools.capsule

release: $(if $(DRY),environment,setup)
	$(PYTHON) -m tools.release $(if $(DRY),--dry)

# With every Python found here, and the distribution's kernels. Not part of `make test`.
matrix: setup
	$(PYTHON) tools/matrix.py $(if $(LINUX_SOURCE),--linux-source "$(LINUX_SOURCE)")

# Deliberate faults, one at a time (docs/how-to/run-the-tests.md). Not part of `make test`. ARGS="--only f-constant", ARGS=--list
mutants: setup
	$(PYTHON) tools/mutants.py $(ARGS)

benchmarks: setup
	$(SUDO) $(PYTHON) benchmarks/ebpf_cost.py
	$(SUDO) $(PYTHON) benchmarks/build_network.py
	$(PYTHON) -m benchmarks.dry_run
	$(PYTHON) -m benchmarks.start
	$(SUDO) $(PYTHON) -m benchmarks.sampling
	$(PYTHON) -m benchmarks.executors
	$(PYTHON) benchmarks/virtual_time.py
	$(PYTHON) benchmarks/tagging.py
	$(SUDO) $(PYTHON) benchmarks/transports.py

# Backend of the experiments: vagrant (a running VM), uml (virtual time, no privilege) or host (this machine's kernel).
vm_is_up = $(and $(wildcard .vagrant/machines/*/*/id),$(findstring state$(comma)running,$(shell vagrant status --machine-readable)))
comma := ,
# Evaluated once, and only if used, because Vagrant takes seconds to answer.
backend_given := $(ON)
ON ?= $(eval ON := $(if $(vm_is_up),vagrant,uml))$(ON)
# A file that provisioning makes in the testbed's VM. Inside the VM, the backend is `host`.
VM_MARK := /var/lib/mltcp/vm
# The VM's backend, from outside or from inside. Without ON, the capacity of the VM is measured first.
vm_clock = $(if $(wildcard $(VM_MARK)),host,$(if $(vm_is_up),vagrant))
measured = $(if $(backend_given),,$(vm_clock))
virtual = $(filter uml vagrant-uml,$(ON))
again = $(MAKE) --no-print-directory
# Each backend has a folder, and so has QUICK=1 (fewer seeds, coarser grids), so that results never replace those of another backend.
backend = $(firstword $(subst :, ,$(ON)))
RESULTS ?= results$(if $(virtual),,/$(backend))$(if $(QUICK),/quick)
# Selection: FIGURE=cdf-reno, PAPER=ltp (a folder of analysis/), EXPERIMENTS=experiments/cdf-reno.toml. Flags for all of them:
# ARGS="--seeds 3 --set rate=50mbit"
files_of = $(wildcard $(foreach figure,$(1),experiments/$(figure).toml experiments/$(figure).*.toml))
figures_of = $(subst _,-,$(basename $(notdir $(wildcard analysis/$(1)/*.py))))
EXPERIMENTS ?= $(if $(FIGURE),$(call files_of,$(FIGURE)),$(if $(PAPER),$(call files_of,$(call figures_of,$(PAPER))),experiments/*.toml))
PARALLEL ?= $(if $(filter uml,$(ON)),$(shell nproc),1)

# The figure `twin` compares runs under virtual time with the same runs on `flow`; other figures do not need the latter.
twin = $(and $(virtual),$(filter experiments/twin.toml,$(wildcard $(EXPERIMENTS))))
# The report covers only the selected experiments.
only = $(if $(filter-out experiments/*.toml,$(EXPERIMENTS)),--experiments $(EXPERIMENTS))

# Existing results are kept, so a stopped command continues. Failed and invalid runs do not prevent the report.
reproduce:
	@$(if $(strip $(EXPERIMENTS)),,echo "no experiments of figure '$(FIGURE)' or paper '$(PAPER)'. Papers: $(filter-out __pycache__,$(notdir $(patsubst %/,%,$(wildcard analysis/*/))))" >&2; exit 2)
	@$(MAKE) --no-print-directory $(if $(measured),reproduce-measured,reproduce-there)

# Experiments that exceed the capacity of the VM run in virtual time: in the VM if its user-mode kernel is built, else here.
reproduce-measured: python
	@on=$$($(if $(filter host,$(vm_clock)),$(SUDO)) $(PYTHON) -m testbed sweep $(EXPERIMENTS) $(if $(QUICK),--quick) $(ARGS) \
		--on $(vm_clock) --measure backend) || exit $$?; \
	$(again) reproduce-there ON=$$on MEASURED=$(vm_clock)

# `agreement` compares backends, so it runs in the VM even if that is too slow for others, at a rate that the VM can run.
too_slow = $(filter-out $(ON),$(MEASURED))
kept = $(if $(too_slow),$(filter experiments/agreement.toml,$(wildcard $(EXPERIMENTS))))
others = $(if $(kept),$(filter-out $(kept),$(wildcard $(EXPERIMENTS))),$(EXPERIMENTS))
swept = -m testbed sweep $(others) $(if $(QUICK),--quick) $(ARGS)
in_the_vm = vagrant rsync && vagrant ssh -c "cd /vagrant && .venv/bin/python -m testbed kernel --if-missing && \
	.venv/bin/python $(swept) --on uml -j \$$(nproc) --out $(RESULTS)"
reproduce-there:
	@$(MAKE) --no-print-directory $(if $(filter uml host,$(ON)),setup,python)
	@code=0; \
	$(if $(others),$(if $(filter vagrant-uml,$(ON)),{ $(in_the_vm); },$(if $(filter host,$(ON)),$(SUDO)) $(PYTHON) $(swept) \
		--on $(ON) -j $(PARALLEL) --out $(RESULTS)) || code=$$?;) \
	case $$code in 2|3) exit $$code;; esac; \
	$(if $(filter vagrant-uml,$(ON)),vagrant ssh -c "tar -C /vagrant -c $(RESULTS)" | tar -x || exit 1;) \
	$(if $(kept),$(again) agreement BACKENDS="uml $(too_slow)" || code=1;) \
	$(if $(twin),$(PYTHON) -m testbed sweep experiments/twin/twin.flow.toml $(if $(QUICK),--quick) -j $(PARALLEL) --out $(RESULTS) || code=1;) \
	$(PYTHON) -m analysis report $(RESULTS) --out report.html --figures figures $(only) || code=1; \
	exit $$code

# The same experiment on every available backend (BACKENDS="uml vagrant"), in one folder, for the figure `agreement`. A backend that
# cannot run it (3), or whose run is invalid (4), does not stop the others. With the VM, all use a rate that was measured to fit,
# unless ARGS has a rate.
BACKENDS ?= $(or $(PLACES),uml host $(if $(vm_is_up),vagrant))
fitted = $(if $(findstring rate,$(ARGS)),,$(filter $(vm_clock),$(BACKENDS)))
agreement: RESULTS = results$(if $(QUICK),/quick)
agreement: setup
	without=; flags=$(if $(fitted),$$($(if $(filter host,$(fitted)),$(SUDO)) $(PYTHON) -m testbed sweep experiments/agreement.toml $(ARGS) \
		--on $(fitted) --measure flags)) || { [ $$? -eq 3 ] && without=$(fitted) || exit 1; }; \
	$(foreach one,$(BACKENDS),[ "$$without" = $(one) ] || $(if $(filter host,$(one)),$(SUDO)) $(PYTHON) testbed/run.py experiments/agreement.toml --on $(one) \
		$(ARGS) $$flags --name agreement.$(one) --out $(RESULTS) || case $$? in (3|4) ;; (*) exit 1;; esac; ) true

# Short runs of the headline claims (ARTIFACT.md). ARGS="--only demo": one of them.
artifact-check: setup
	$(PYTHON) -m tools.artifact_check $(ARGS)

# With a running VM, results may still be of virtual time, if its capacity was too low.
figures report: ON = $(or $(backend_given),$(if $(and $(wildcard results/vagrant),$(vm_is_up)),vagrant,uml))
figures: python
	$(PYTHON) -m analysis figures $(RESULTS) --out figures

report: python
	$(PYTHON) -m analysis report $(RESULTS) --out report.html --figures figures$(if $(wildcard explorer.html), --explorer explorer.html)

clean:
	rm -rf .venv results figures explorer.html report.html report.md claims.csv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
