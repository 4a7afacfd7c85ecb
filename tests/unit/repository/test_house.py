"""Habits of the house that are easily broken."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.backends import uml
from testbed.cli import demo, dry_run, main
from testbed.core.errors import EXIT_OK
from testbed.core.runs.plan import Plan
from testbed.spec.backend_names import OWN_VM

ROOT = Path(__file__).parents[3]
FOLDERS = ("testbed", "topologies", "workloads", "analysis")


def names_imported(path: Path) -> set[str]:
    """In full: of ``from workloads import text`` it is ``testbed.core.text``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported(path: Path) -> set[str]:
    return {name.split(".")[0] for name in names_imported(path)}


def test_what_is_asked_for_and_planned_needs_no_kernel() -> None:
    """Nothing that touches one is loaded with it, and nothing of it looks at /proc."""
    files = [path for room in ("spec", "planning") for path in sorted((ROOT / "testbed" / room).rglob("*.py"))]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files]
    program = (
        "import importlib, sys\n"
        "def hear(event, told):\n"
        "    looked = event in ('open', 'os.listdir', 'os.scandir')\n"
        "    assert not (looked and str(told[0]).startswith('/proc')), told\n"
        "sys.addaudithook(hear)\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print([name for name in ('pyroute2', 'mininet.node', 'mininet.net', 'elftools', 'paramiko') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_run_in_user_mode_linux_begins_without_what_only_its_results_need() -> None:
    """Each takes a tenth of a second and more: what is planned, and whatever gets it running, does without."""
    program = (
        "import sys\n"
        "import testbed.backends.uml, testbed.campaign.request, testbed.cli.console, testbed.cli.run\n"
        "late = {'numpy', 'pandas', 'scipy', 'matplotlib', 'pyroute2', 'mininet.net'}\n"
        "print(sorted(late & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_run_on_another_machine_needs_no_more_than_what_is_brought_along() -> None:
    """What `upload.PACKAGES` names, and the standard library: no NumPy, however deep."""
    program = (
        "import importlib.util, sys\n"
        "class Lacking:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('numpy', 'pandas', 'scipy', 'matplotlib', 'rich', 'jinja2', 'paramiko', 'distributed'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Lacking())\n"
        "import testbed.linux.run_in_kernel, testbed.backends.remote, testbed.linux.sampling.sampler, testbed.replay.worker\n"
        "print('runs')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "runs", done.stderr


def test_importing_a_run_changes_no_library() -> None:
    program = (
        "from pyroute2.netlink.rtnl.tcmsg import plugins\n"
        "from pyroute2.netlink.rtnl.rtmsg import rtmsg\n"
        "from mininet.net import Mininet\n"
        "def state(): return dict(plugins), rtmsg.nla_map, dict(vars(Mininet))\n"
        "before = state()\n"
        "import testbed.linux.run_in_kernel\n"
        "print(state() == before)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr


def test_what_runs_in_a_host_needs_the_standard_library_alone() -> None:
    engine = ROOT / "testbed"
    files = [
        engine / "replay" / f"{name}.py" for name in ("worker", "bands", "exchange", "ring", "sending", "messages")
    ]
    files += [engine / "traces" / f"{name}.py" for name in ("collectives", "noise", "pipelining", "recording")]
    files += (ROOT / "workloads/collectives").glob("*.py")
    trains = ("torch", "hadamard")  # what has real gradients has NumPy
    files += [path for path in (engine / "transports").rglob("*.py") if path.parent.name not in trains]
    core = ("errors", "options", "clock", "environment", "grid", "layouts", "text", "units")
    files += [engine / "core" / f"{name}.py" for name in core]
    linux = ("sampling/sampler.py", "sampling/netlink.py", "netns.py", "loading/bpfsys.py")
    files += [engine / "linux" / name for name in linux]
    files += [engine / name for name in ("run.py", "registry.py", "congestion/mltcp.py", "traces/hook/__init__.py")]
    files += [engine / "traces/hook/sitecustomize.py"]
    for path in files:
        outside = imported(path) - set(sys.stdlib_module_names) - {"testbed"}
        assert not outside or path.name == "environment.py", (path, outside)


def test_every_c_file_names_its_licence() -> None:
    for path in (ROOT / "kernel").rglob("*.[ch]"):
        assert "SPDX-License-Identifier: GPL-2.0-only" in path.read_text().splitlines()[0], path


def test_before_set_up_it_says_what_to_do(tmp_path: Path) -> None:
    """A checkout without an environment, started by a Python without the packages."""
    core = (f"testbed/core/{name}.py" for name in ("__init__", "environment", "start", "interruption", "errors"))
    for name in ("testbed/run.py", "testbed/__init__.py", *core):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    done = subprocess.run(
        ["/usr/bin/python3", "-S", str(tmp_path / "testbed" / "run.py"), "--jobs", "4"],
        env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "make" in done.stderr and "setup" in done.stderr
    assert "Traceback" not in done.stderr


def test_any_python_finds_the_environment(tmp_path: Path) -> None:
    """As `sudo` would start it: an empty environment, the system's own Python, another directory."""
    if not (ROOT / ".venv/bin/python").exists():
        pytest.skip("no .venv here: run `make setup`")
    run = ["--topo", "dumbbell", "--jobs", "4", "--dry-run"]
    for start, words, says in (
        ([str(ROOT / "testbed/run.py")], run, "job 3: synthetic over reno on l4 r4"),
        (["-m", "testbed", "run"], run, "job 3: synthetic over reno on l4 r4"),
        (["-m", "workloads"], ["list"], "resnet50"),
        (["-m", "analysis"], ["compare", "--help"], "python -m analysis compare"),
    ):
        done = subprocess.run(
            ["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "/usr/bin/python3", *start, *words],
            cwd=ROOT if start[0] == "-m" else tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert says in done.stdout


@pytest.mark.parametrize(
    ("said", "out", "prepares"),
    [
        ("ON=uml", "results", "setup"), ("ON=uml QUICK=1", "results/quick", "setup"), ("ON=host", "results/host", "setup"),
        ("ON=vagrant QUICK=1", "results/vagrant/quick", "python"), ("ON=ssh:root@a,ssh:b", "results/ssh", "python"),
        ("ON=host RESULTS=mine", "mine", "setup"), ("ON=vagrant-uml", "results", "python"),
    ],
)  # fmt: skip
def test_make_reproduce_keeps_places_apart(said: str, out: str, prepares: str) -> None:
    """What runs in a VM must not replace what ran under virtual time; and in front of a VM only Python is needed."""
    shown = subprocess.run(
        ["make", "-n", "reproduce", *said.split()], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert f"--out {out} ||" in shown.stdout and f"analysis report {out} --out" in shown.stdout
    assert ("tools/setup.sh --python" in shown.stdout) == (prepares == "python")


def recipes(*words: str) -> str:
    """What `make` would run; nothing is run, and Vagrant is not asked."""
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_make_reproduce_takes_the_experiments_of_a_paper_or_a_figure() -> None:
    one = recipes("reproduce", "ON=uml", "FIGURE=sjf-ratio")
    assert "sweep experiments/sjf-ratio.toml --on" in " ".join(one.split())
    paper = recipes("reproduce", "ON=uml", "PAPER=sjf_bco")
    assert "experiments/sjf-ratio.toml" in paper and "experiments/tail.toml" not in paper
    refused = subprocess.run(
        ["make", "-s", "reproduce", "PAPER=no"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2 and "Papers: beyond ltp mlt mltcp sjf_bco" in refused.stderr


def test_make_reproduce_measures_a_vm_that_is_up() -> None:
    """Before anything runs, unless ON says where; `agreement` stays in the VM, where the VM is too slow for the others."""
    asked = recipes("reproduce", "vm_is_up=yes")
    assert "--on vagrant --measure backend" in asked and "--out results" not in asked
    assert "--measure" not in recipes("reproduce", "vm_is_up=yes", "ON=vagrant")
    assert "--measure" not in recipes("reproduce", "vm_is_up=", "ON=uml")
    both = "EXPERIMENTS=experiments/agreement.toml experiments/interleaving.toml"
    there = ("reproduce", both, "MEASURED=vagrant")
    assert 'agreement BACKENDS="uml vagrant"' in recipes(*there, "ON=uml")
    assert "sweep experiments/interleaving.toml" in recipes(*there, "ON=uml")
    assert "sweep experiments/agreement.toml experiments/interleaving.toml" in recipes(*there, "ON=vagrant")
    in_vm = recipes(*there, "ON=vagrant-uml")
    assert "vagrant ssh" in in_vm and "--on uml" in in_vm and 'BACKENDS="uml vagrant"' in in_vm
    assert "--measure flags" in recipes("agreement", "BACKENDS=uml vagrant", "vm_is_up=yes")
    assert "--measure" not in recipes("agreement", "BACKENDS=uml host", "vm_is_up=yes")
    assert "--measure" not in recipes("agreement", "BACKENDS=uml vagrant", "vm_is_up=yes", "ARGS=--set rate=100mbit")
    if not (ROOT / "results/vagrant").exists():
        assert "report results --out" in recipes("report", "vm_is_up=yes")


def test_make_reproduce_inside_the_vm_measures_the_vms_own_kernel(tmp_path: Path) -> None:
    """With the mark that provisioning leaves, and only with it; as root, which the VM's own kernel takes."""
    mark = tmp_path / "vm"
    words = (f"VM_MARK={mark}", "vm_is_up=")
    assert "--measure" not in recipes("reproduce", *words, "ON=uml")
    assert "--on host" not in recipes("reproduce", *words)
    mark.touch()
    asked = recipes("reproduce", *words, "SUDO=sudo")
    assert "sudo .venv/bin/python -m testbed sweep" in asked and "--on host --measure backend" in asked
    assert "MEASURED=host" in asked
    assert "--measure" not in recipes("reproduce", *words, "ON=uml")
    both = "EXPERIMENTS=experiments/agreement.toml experiments/interleaving.toml"
    slow = recipes("reproduce-there", *words, both, "MEASURED=host", "ON=uml")
    assert 'agreement BACKENDS="uml host"' in slow and "sweep experiments/interleaving.toml" in slow
    fits = recipes("reproduce-there", *words, both, "MEASURED=host", "ON=host")
    assert "BACKENDS=" not in fits and "sweep experiments/agreement.toml experiments/interleaving.toml" in fits
    held = recipes("agreement", *words, "BACKENDS=uml host")
    assert "--on host --measure flags" in held


def test_the_mark_of_the_vm_is_the_one_that_provisioning_leaves() -> None:
    (mark,) = re.findall(r"^VM_MARK := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert Path(mark) == OWN_VM


@pytest.mark.parametrize("words", [
    ("agreement", "BACKENDS=uml host"), ("agreement", "BACKENDS=uml vagrant", "vm_is_up=yes"), ("reproduce-there", "ON=vagrant-uml"),
    ("reproduce-there", "ON=uml", "MEASURED=vagrant"), ("reproduce-measured", "vm_is_up=yes"), ("setup",), ("test",), ("test-long",),
    ("coverage",), ("check",), ("benchmarks",), ("box",),
])  # fmt: skip
def test_what_make_runs_is_what_a_shell_reads(words: Sequence[str]) -> None:
    done = subprocess.run(["sh", "-n"], input=recipes(*words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_variable_of_the_makefile_has_one_meaning() -> None:
    names = re.findall(r"^(\w+) *[:?]?=", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(names) == sorted(set(names))


def test_make_demo_needs_no_root_and_no_new_kernel() -> None:
    """The minimum RTO of a namespace came with Linux 6.11."""
    shown = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    demo_line = next(line for line in shown.splitlines() if "testbed demo" in line)
    assert not any(word in line for line in (demo_line, *demo.RUNS) for word in ("sudo", "--rto-min", "--on"))
    assert "make demo-host" in shown


def test_the_demo_asks_for_nothing_that_linux_6_1_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Debian 12's own source: no minimum RTO of a namespace, no seeded hash of paths (both 6.11), no eBPF congestion control (6.4)."""
    asked: list[Plan] = []

    def keep(plan: Plan, _: object) -> list[str]:
        asked.append(plan)
        return []

    monkeypatch.setattr(dry_run, "describe", keep)
    for line in demo.RUNS:
        assert main(["run", *shlex.split(line), "--out", str(tmp_path), "--dry-run"]) == EXIT_OK
    assert {"synthetic", "resnet50"} == {job.trace for one in asked for job in one.jobs}
    for one in asked:
        assert one.rto_min_us is None and not one.multipath
        assert uml.lacks(one) is None
