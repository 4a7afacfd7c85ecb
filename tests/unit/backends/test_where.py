"""Where to run, and what an experiment is asked for there."""

from __future__ import annotations

import ast
import io
import json
import os
import platform
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from testbed import spec
from testbed.backends import bootstrap, choice, connection, host, uml, upload
from testbed.backends.usermode import kernel
from testbed.cli import main
from testbed.congestion import catalogue
from testbed.core.errors import EXIT_MACHINE, EXIT_OK, EXIT_REQUEST, MachineError, RequestError
from testbed.core.runs.plan import Plan
from testbed.linux import privileges
from testbed.linux.loading import registry
from testbed.planning import plan
from testbed.spec import backend_names, limits, schema, sweep
from testbed.spec.backend_names import Address

ROOT = Path(__file__).parents[3]
FILE = """\
rate = "50gbit"
mtu = 9000
compute = "100ms"
bytes = "100MB"
delay = "1ms"
seeds = 5
cc = ["reno"]

[link.s1-s2]
buffer = "2ms"

[real-clock]
rate = "300mbit"
bytes = "2MB"
delay = "0ms"
seeds = 2

[real-clock.link.s1-s2]
ecn = "on"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "both.toml"
    path.write_text(FILE)
    return str(path)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ssh:lab", Address("lab")),
        ("ssh:me@lab-1.example.org:2222", Address("lab-1.example.org", "me", 2222)),
        ("ssh:me@[fe80::1%eth0]:2222", Address("fe80::1%eth0", "me", 2222)),
        ("ssh:10.0.0.1", Address("10.0.0.1")),
    ],
)
def test_an_address(text: str, address: Address) -> None:
    assert backend_names.parse_address(text) == address


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ("mars", "'mars' is no backend. Give one of auto, host, uml, flow, vagrant, ssh:"),
        ("ssh:", "is no backend"),
        ("ssh:-oProxyCommand=x", "is no backend"),
        ("ssh:lab:99999", "is no backend"),
        ("ssh:lab:ssh", "is no backend"),
        ("ssh:a,ssh:a", "names a machine twice"),
        ("host,ssh:a", "only other machines"),
    ],
)
def test_no_backend(on: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--on", on, "--dry-run"]) == EXIT_REQUEST
    shown = capsys.readouterr().err
    assert says in shown and "on: " in shown


def test_several_machines_are_for_sweeps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--on", "ssh:a,ssh:b", "--dry-run"]) == EXIT_REQUEST
    assert "mltcp sweep" in capsys.readouterr().err
    assert backend_names.parse("ssh:a, vagrant") == ("ssh:a", "vagrant")


@pytest.mark.parametrize(
    ("on", "rate", "seeds", "delay"),
    [
        ("uml", 50 * 10**9, 5, 10**6),
        ("auto", 50 * 10**9, 5, 10**6),
        ("host", 300 * 10**6, 2, 0),
        ("ssh:lab", 300 * 10**6, 2, 0),
    ],
)
def test_what_is_asked_for_in_real_time(file: str, on: str, rate: int, seeds: int, delay: int) -> None:
    asked = spec.read(file, {"on": on})
    assert (asked.rate, asked.seeds, asked.delay) == (rate, seeds, delay)
    assert asked.mtu == 9000 and asked.compute == 100_000_000
    assert asked.link["s1-s2"].buffer == "2ms"  # tables are merged
    assert asked.link["s1-s2"].ecn == (None if rate > 10**9 else "on")


def test_flags_win_over_it_too(file: str) -> None:
    assert spec.read(file, {"on": "host", "rate": "400mbit"}).rate == 4 * 10**8
    assert spec.read(file, {"on": "host", "set": ["seeds=1"]}).seeds == 1


def test_it_replaces_the_job(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('trace = "resnet50"\n[real-clock]\ncompute = "1s"\nbytes = "1MB"\n')
    assert spec.read(str(path), {"on": "host"}).trace is None
    path.write_text('compute = "1s"\nbytes = "1MB"\n[real-clock]\ntrace = "resnet50"\n')
    assert spec.read(str(path), {"on": "host"}).compute is None


def test_it_stands_on_a_base_like_everything_else(tmp_path: Path, file: str) -> None:
    above = tmp_path / "above.toml"
    above.write_text(f'base = "{Path(file).name}"\n[real-clock]\nseeds = 1\n')
    asked = spec.read(str(above), {"on": "vagrant"})
    assert (asked.seeds, asked.rate) == (1, 300 * 10**6)


def test_it_may_be_swept_over_and_what_it_fixes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "swept.toml"
    path.write_text(
        'compute = "10ms"\nbytes = "1MB"\n[sweep]\nrate = ["10gbit", "50gbit"]\njobs = [2, 4]\n[sweep.zip]\nmtu = [1500, 9000]\n'
        'buffer = ["1ms", "2ms"]\n[real-clock]\nrate = "300mbit"\nmtu = 1500\nbuffer = "1ms"\n[real-clock.sweep]\njobs = [2, 3]\n'
    )
    assert len(sweep.read(str(path), {"on": "uml"})) == 8
    found = sweep.read(str(path), {"on": "host"})
    assert [(one.name, one.rate, one.jobs) for one in found] == [
        ("swept.jobs-2", 3 * 10**8, 2),
        ("swept.jobs-3", 3 * 10**8, 3),
    ]
    path.write_text("[sweep]\njobs = [2, 4]\n[real-clock]\njobs = 2\n")
    (only,) = sweep.read(str(path), {"on": "host"})
    assert only.name == "swept"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("real-clock = 3", "real-clock: must be a table"),
        ('[real-clock]\non = "host"', "real-clock: on cannot differ here"),
        ('[real-clock]\nname = "x"', "real-clock: name cannot differ"),
        ("[real-clock]\nrate = 5", "needs a unit"),
    ],
)
def test_a_wrong_table(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(RequestError, match=r"wrong\.toml") as error:
        spec.read(str(path), {"on": "host"})
    assert says in str(error.value)


def test_where_it_runs_is_no_field_like_others(file: str) -> None:
    with pytest.raises(RequestError, match="Use --on uml"):
        spec.read(file, {"set": ["on=uml"]})


def test_dry_run_shows_it(file: str, capsys: pytest.CaptureFixture[str], built: None) -> None:
    assert main(["run", file, "--on", "ssh:lab", "--dry-run"]) == EXIT_OK
    shown = capsys.readouterr().out
    assert shown.startswith("on `ssh:lab`\n[real-clock] applies:\n")
    assert "rate = '300 Mbit/s', not '50 Gbit/s'" in shown and "s1-s2: 300 Mbit/s, buffer" in shown
    for words in ([], ["--on", "uml"]):
        assert main(["run", file, *words, "--dry-run"]) == EXIT_OK
        shown = capsys.readouterr().out
        assert shown.startswith("on `uml`\nrun reno") and "real-clock" not in shown
        assert "s1-s2: 50 Gbit/s, buffer" in shown


def test_what_neither_kernel_has_is_said_of_both(
    file: str, capsys: pytest.CaptureFixture[str], built: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel concerned, why it is that one, and what helps: the module's file."""
    monkeypatch.setattr(catalogue, "built_in", lambda: ("reno",))
    monkeypatch.setattr(registry, "kernel_has", lambda name: name == "reno")
    code, said = main(["run", file, "--cc", "vegas", "--dry-run"]), capsys.readouterr()
    if os.geteuid() == 0:
        words = " ".join(said.err.split())
        assert code == EXIT_MACHINE and said.out == ""
        assert "`host`: " in words and "no vegas" in words
        assert all(word in words for word in (platform.release(), "--system ./tcp_vegas.c"))
        assert main(["run", file, "--cc", "vegas", "--on", "host", "--dry-run"]) == EXIT_MACHINE
        assert "on `host`" not in capsys.readouterr().err  # it was named
    else:
        assert code == EXIT_OK and "[real-clock] applies:" in said.out
    assert main(["run", file, "--cc", "vegas", "--on", "uml", "--dry-run"]) == EXIT_REQUEST
    assert "--system ./tcp_vegas.c" in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with a user-mode Linux kernel, which is not the project's VM."""
    monkeypatch.setattr(kernel, "is_built", lambda: True)
    monkeypatch.setattr(backend_names, "OWN_VM", tmp_path / "none")


class Fake:
    """A backend that can, or cannot."""

    limits = limits.LINUX

    def __init__(self, name: str, able: bool = True) -> None:
        self.name, self.able = name, able

    def check(self, plan: Plan) -> None:
        if not self.able:
            raise MachineError(f"{self.name} cannot.")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, built: None) -> None:
    monkeypatch.setattr(host, "Host", lambda: Fake("host"))
    monkeypatch.setattr(uml, "find", lambda *_: Fake("uml"))


def taken(file: str, **flags: Any) -> tuple[choice.Choice, str]:
    """Where a run of ``file`` goes, and which backend it is given there."""

    def read(flags: dict[str, Any]) -> list[spec.Spec]:
        return [spec.read(file, flags)]

    settled, backend = choice.settle(choice.choose(read, flags), read, flags)
    assert all(one.on == settled.backend for one in settled.specs)
    return settled, backend.name


def test_without_a_place_it_is_uml(file: str, fakes: None) -> None:
    settled, name = taken(file)
    assert (settled.backend, settled.reason, name) == ("uml", None, "uml")
    assert settled.specs[0].rate == 50 * 10**9 == settled.plans[0].link.rate_bps


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"job": ["ddp:resnet18"]}, "is a real program"),
        ({"job": ["cmd:true"]}, "is a real program"),
        ({"cc": ["reno", str(ROOT / "examples/mine.bpf.c")]}, "is an eBPF program"),
        ({"cc": ["reno", "vegas"]}, "has no vegas"),
    ],
)
def test_what_uml_lacks_goes_to_host_with_the_reason(
    tmp_path: Path, flags: dict[str, Any], says: str, fakes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "built_in", lambda: ("reno",))
    path = tmp_path / "plain.toml"
    path.write_text("[real-clock]\nseeds = 2\n")
    settled, name = taken(str(path), **flags)
    assert (settled.backend, settled.specs[0].seeds, name) == ("host", 2, "host")
    assert says in str(settled) and "\n" not in str(settled)
    with pytest.raises(RequestError, match=says):  # asked for, it is refused
        taken(str(path), **flags, on="uml")


REFUSED = [
    (["--on", "flow", "--queue", "fq_codel"], "has no packets"),
    (["--on", "flow", "--background", "long"], "has no packets"),
    (
        ["--on", "flow", "--rate-trace", str(ROOT / "examples/link_steps.trace")],
        "rates in the flow simulator are constant",
    ),
    (["--on", "flow", "--capture", "s1-s2"], "has no packets"),
    (["--on", "flow", "--pause-at", "1s"], "computes a run at once"),
    (["--on", "host", "--pause-at", "1s"], "real clock"),
    (["--on", "uml", "--pause-at", "abc"], "'abc' is not a time"),
    (["--on", "uml", "--background", "iperf3"], "stops the virtual clock"),
]


@pytest.mark.parametrize(("flags", "says"), REFUSED)
def test_a_dry_run_refuses_what_the_run_refuses(
    flags: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], built: None
) -> None:
    said = []
    for more in [], ["--json"], ["--dry-run"], ["--dry-run", "--json"]:
        assert main(["run", *flags, *more, "--out", str(tmp_path / "out")]) == EXIT_REQUEST
        said.append(capsys.readouterr())
    assert says in " ".join(said[0].err.split()) and {(one.out, one.err) for one in said} == {("", said[0].err)}


def test_a_sweep_refuses_it_before_its_first_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "queue.toml"
    path.write_text('on = "flow"\nqueue = "fq_codel"\n')
    for more in [], ["--dry-run"], ["--dry-run", "--json"]:
        assert main(["sweep", str(path), *more, "--out", str(tmp_path / "out")]) == EXIT_REQUEST
        said = capsys.readouterr()
        assert "has no packets" in " ".join(said.err.split()) and said.out == ""


def test_in_the_projects_own_vm_it_is_host(
    file: str, tmp_path: Path, fakes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vm").touch()
    monkeypatch.setattr(backend_names, "OWN_VM", tmp_path / "vm")
    monkeypatch.setattr(kernel, "is_built", lambda: False)
    monkeypatch.setattr(kernel, "build_apart", lambda: pytest.fail("nothing is built there"))
    settled, name = taken(file)
    assert (settled.backend, name, settled.specs[0].rate) == ("host", "host", 300 * 10**6)
    assert "own VM" in str(settled)
    monkeypatch.setattr(kernel, "build_apart", lambda: None)
    assert taken(file, on="uml")[1] == "uml"  # but may be asked for
    provisioning = (ROOT / "vagrant/provision.sh").read_text()
    assert "state=/var/lib/mltcp\n" in provisioning and ">$state/vm" in provisioning


def test_a_kernel_that_is_missing_is_built(file: str, fakes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[int] = []
    monkeypatch.setattr(kernel, "is_built", lambda: False)
    monkeypatch.setattr(kernel, "check_possible", lambda: None)
    monkeypatch.setattr(kernel, "build_apart", lambda: builds.append(1))
    assert taken(file)[1] == taken(file, on="uml")[1] == "uml"
    assert len(builds) == 2


def test_where_none_can_be_built_it_is_host(file: str, fakes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "is_built", lambda: False)
    monkeypatch.setattr(kernel, "check_possible", lambda: None)
    monkeypatch.setattr(kernel, "build_apart", lambda: "there is no room.")
    settled, name = taken(file)
    assert (name, str(settled)) == ("host", "on `host`: user-mode Linux is not built and cannot be: there is no room")
    with pytest.raises(MachineError, match="there is no room"):
        taken(file, on="uml")
    with monkeypatch.context() as given_up:  # whoever has no root any more cannot go on there
        given_up.setattr(privileges, "given_up", lambda: True)
        with pytest.raises(MachineError, match=r"there is no room\. .*--on host "):
            taken(file)

    def impossible() -> None:
        raise MachineError("this is no x86_64.")

    monkeypatch.setattr(kernel, "check_possible", impossible)
    monkeypatch.setattr(kernel, "build_apart", lambda: pytest.fail("it need not be tried"))
    assert "this is no x86_64" in str(taken(file)[0])
    monkeypatch.setattr(host, "Host", lambda: Fake("host", able=False))
    with pytest.raises(MachineError, match=r"x86_64; .*: host cannot\."):
        taken(file)


def test_a_sweep_goes_where_a_run_would(
    file: str, tmp_path: Path, built: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "real.toml").write_text('job = ["ddp:resnet18"]\ncc = ["reno"]\n')
    assert main(["sweep", file, str(tmp_path / "real.toml"), "--dry-run"]) == EXIT_OK
    shown = capsys.readouterr().out
    assert "both: 6 runs of 2 jobs, reno, on uml" in shown
    assert "is a real program" in shown and "real: 1 run of 1 job, reno, on host" in shown


def test_under_sudo_a_sweep_keeps_root_for_all_or_for_none(
    file: str, tmp_path: Path, built: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(privileges, "caller", lambda: privileges.Caller(4242, 4242, "me", "/", ()))
    monkeypatch.setattr(privileges, "without_root", lambda ask: ask())
    monkeypatch.setattr(choice, "end_with", lambda *_: None)
    monkeypatch.setattr(choice, "choose", lambda *_: pytest.fail("something is read as root"))
    (tmp_path / "real.toml").write_text('job = ["ddp:resnet18"]\ncc = ["reno"]\n')
    assert main(["sweep", file, str(tmp_path / "real.toml"), "--out", str(tmp_path)]) == EXIT_REQUEST
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "`sudo`" in said and len(said.splitlines()) == 1
    assert "real.toml. Run them in a sweep" in said


@pytest.mark.parametrize("words", [[], ["--dry-run"]])
def test_a_place_for_results_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, words: list[str], built: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "settle", lambda *_: pytest.fail("something runs"))
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file/below", Path("/proc/none")):
        assert main(["run", "--on", "uml", "--out", str(out), *words]) == EXIT_REQUEST
        assert f"--out {out}: nothing can be written to" in capsys.readouterr().err


def test_the_schema_knows_it() -> None:
    properties = schema.schema()["$defs"]["Spec"]["properties"]
    assert "rate" in properties["real-clock"]["properties"] and "sweep" in properties["real-clock"]["properties"]
    assert "on" not in properties["real-clock"]["properties"]
    json.dumps(schema.schema())


def test_what_goes_first_is_understood_by_old_pythons_without_packages() -> None:
    text = Path(bootstrap.__file__).read_text()
    tree = ast.parse(text, feature_version=(3, 7))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert modules <= set(sys.stdlib_module_names)


def test_what_goes_along() -> None:
    with tarfile.open(fileobj=io.BytesIO(upload.archive())) as tar:
        names = set(tar.getnames())
    assert {"code/testbed/backends/remote.py", "code/kernel/mltcp.h", "code/testbed/replay/worker.py"} <= names
    assert {f"packages/{name}/__init__.py" for name in upload.PACKAGES.values()} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith("/") or ".." in name]
    assert len(upload.archive()) < 3_000_000


def test_files_of_ones_own_go_along_under_names_of_theirs(tmp_path: Path) -> None:
    mine = tmp_path / "mine.bpf.c"
    mine.write_text((ROOT / "examples/mine.bpf.c").read_text())
    (tmp_path / "mine.h").write_text("\n")
    topology = tmp_path / "mine.py"
    topology.write_text("from topologies.dumbbell import Dumbbell as Mine\ntopos = {'mine': Mine}\n")
    one = plan.plans(plan.resolve(spec.read(None, {"topo": f"{topology},2", "cc": ["reno", str(mine)]})))[2]
    files = upload.files(one)
    label = one.jobs[0].cc.folder
    assert {"own/content/0/mine.py", f"own/{label}/mine.bpf.c", f"own/{label}/mine.h"} <= files.keys()
    there = upload.elsewhere(one, "/media")
    assert there.topology == "/media/own/content/0/mine.py"
    assert {job.cc.source for job in there.jobs} == {f"/media/own/{label}/mine.bpf.c"}


CONFIG = """\
Host lab
    HostName 10.1.2.3
    User me
    Port 2200
    UserKnownHostsFile ~/.ssh/lab_hosts
    HostKeyAlias lab-key
    StrictHostKeyChecking no
Host inner
    ProxyJump lab
"""


def test_the_users_ssh_configuration_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(CONFIG)
    monkeypatch.setenv("HOME", str(tmp_path))
    way = connection.route("ssh:lab")
    assert (way.host, way.user, way.port, way.known_as) == ("10.1.2.3", "me", 2200, "lab-key")
    assert way.known_hosts[-1] == str(tmp_path / ".ssh/lab_hosts")
    assert way.checked  # no file waives this
    assert connection.route("ssh:you@lab:22").user == "you" and connection.route("ssh:you@lab:22").port == 22
    assert connection.route("ssh:root@inner").proxy == ("ssh", "-W", "inner:22", "lab")


def test_without_vagrant_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MachineError, match="Vagrant is not installed"):
        connection.route("vagrant")
