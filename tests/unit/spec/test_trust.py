"""What a stored plan may say, and what is only executed if somebody says that it is trusted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.campaign import stored
from testbed.cli import main
from testbed.core.errors import EXIT_OK, EXIT_REQUEST, RequestError
from testbed.core.runs import documents
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.load import LoadError, load_run
from testbed.core.runs.plan import Plan
from testbed.planning import plan
from testbed.spec import read
from testbed.spec import sweep as points
from tests.support import synthetic
from tests.support.manifests import VALID

Manifest = dict[str, Any]
TOPOLOGY = """\
from pathlib import Path
Path({proof!r}).touch()
from topologies.dumbbell import Dumbbell
topos = {{"mine": Dumbbell}}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    spec = read(None, {"jobs": 2, "cc": ["reno"], "iterations": 3, "name": "x"})
    synthetic.write([spec], tmp_path, lambda plan, i: 1.0)
    return tmp_path / "x/reno/1"


def change(run: Path, by: Callable[[Manifest], None]) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    by(manifest)
    (run / "manifest.json").write_text(json.dumps(manifest))


def test_a_foreign_topology_is_not_executed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The digest of the file stands in the manifest that names it: it proves nothing."""
    proof, topology = tmp_path / "executed", tmp_path / "evil.py"
    topology.write_text(TOPOLOGY.format(proof=str(proof)))

    def evil(manifest: Manifest) -> None:
        manifest["plan"]["topology"] = str(topology)
        manifest["topology_sha256"] = hashlib.sha256(topology.read_bytes()).hexdigest()

    change(run, evil)
    for words in ([], ["--dry-run"]):
        assert main(["run", "--verify", str(run), *words]) == EXIT_REQUEST
        said = capsys.readouterr().err
        assert str(topology) in said and "--allow-external-code" in said
        assert not proof.exists()
    for flag in ("--trust", "--allow-external-code"):
        assert main(["run", "--verify", str(run), "--dry-run", flag]) == EXIT_OK


def test_a_foreign_source_is_not_compiled(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "tcp_mine.c"
    source.write_text("")

    def evil(manifest: Manifest) -> None:
        for cc in (*manifest["plan"]["system"]["congestion"], *(job["cc"] for job in manifest["plan"]["jobs"])):
            cc |= {"source": str(source), "name": "mine", "spec": str(source)}

    change(run, evil)
    assert main(["run", "--verify", str(run)]) == EXIT_REQUEST
    assert "tcp_mine.c" in (said := capsys.readouterr().err) and "--allow-external-code" in said


def pipe(path: Path) -> None:
    os.mkfifo(path)


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 5 << 30)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("name", ["links.csv", "manifest.json"])
@pytest.mark.parametrize("make", [pipe, large, endless])
def test_what_is_no_file_of_a_run_is_not_waited_for(
    run: Path, make: Callable[[Path], None], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).unlink()
    make(run / name)
    assert main(["run", "--verify", str(run)]) == EXIT_REQUEST
    assert name in (said := capsys.readouterr().err) and ("regular file" in said or "is the limit" in said)
    shutil.copytree(run.parents[1], run.parents[2] / "deeper/x", ignore=lambda *_: [name])
    make(run.parents[2] / "deeper/x/reno/1" / name)
    aside = run.parents[2].with_name("aside")
    main(["report", str(run.parents[2]), "--out", str(aside / "report.html"), "--figures", str(aside)])


CODE = {
    "topo": 'topo = "evil.py"', "topo-arguments": 'topo = "./evil.py,2"', "quick": '[quick]\ntopo = "evil.py"',
    "sweep": '[sweep]\ntopo = ["evil.py", "dumbbell"]', "base": 'base = "below.toml"', "absolute": 'topo = "{folder}/evil.py"',
    "module": 'system = ["tcp_evil.c"]', "one-of-two": 'system = ["reno+./tcp_evil.c:step=4"]', "ebpf": 'cc = ["./evil.bpf.c"]',
    "of-a-job": '[[job]]\ntrace = "s1"\ncc = "tcp_evil.c"', "program": '[[job]]\ncmd = "touch executed"',
    "program-as-typed": 'job = ["cmd:touch executed", "s1"]', "scheduler": 'scheduler = "evil.py"',
    "program-in-sweep": '[sweep]\njob = [["s1"], ["cmd:touch executed"]]',
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Code that leaves a proof where it was executed: ``executed``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(TOPOLOGY.format(proof=str(tmp_path / "executed")))
    for name in ("tcp_evil.c", "evil.bpf.c"):
        (tmp_path / name).write_text("")
    (tmp_path / "below.toml").write_text('topo = "evil.py"\n')
    return tmp_path


@pytest.mark.parametrize("text", CODE.values(), ids=CODE)
def test_root_executes_no_code_that_a_file_names(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (files / "x.toml").write_text(text.replace("{folder}", str(files)) + "\n")
    sweep = ["sweep", "x.toml", "--quick"]
    for words in (
        sweep,
        [*sweep, "--dry-run"],
        ["run", "x.toml", "--quick"],
        ["run", "x.toml", "--quick", "--dry-run"],
    ):
        if "[sweep]" in text and words[0] == "run":
            continue
        for place in ("flow", "uml"):
            assert main([*words, "--on", place]) == EXIT_REQUEST
            assert "--allow-external-code" in capsys.readouterr().err
    assert not (files / "executed").exists()
    for flags in ({"allow_external_code": True}, {}):
        if not flags:
            monkeypatch.setattr(os, "geteuid", lambda: 1000)
        try:
            points.read("x.toml", {"quick": True, **flags})
        except RequestError as error:  # of what is wrong with this code itself
            assert "--allow-external-code" not in str(error)


def test_what_the_user_types_is_executed(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (files / "x.toml").write_text('topo = "evil.py"\n')
    dry = ["run", "--dry-run", "--on", "flow"]
    assert main([*dry, "x.toml", "--topo", "dumbbell"]) == EXIT_OK
    assert main([*dry, "x.toml", "--set", "topo=dumbbell"]) == EXIT_REQUEST or not (files / "executed").exists()
    assert not (files / "executed").exists()
    code = (files / "evil.py").read_text()
    for number, typed in enumerate((
        ["--topo", "./evil.py"],
        ["x.toml", "--topo", "./evil.py"],
        ["x.toml", "--trust"],
        ["x.toml", "--allow-external-code"],
    )):  # fmt: skip
        (files / "executed").unlink(missing_ok=True)
        (files / "evil.py").write_text(f"{code}\n# {number}: a process executes the same content once\n")
        assert main([*dry, *typed]) == EXIT_OK
        assert (files / "executed").exists()


def every_job(**fields: Any) -> Callable[[Manifest], None]:
    return lambda plan: [job.update(fields) for job in plan["jobs"]]  # type: ignore[return-value]


def every_cc(**fields: Any) -> Callable[[Manifest], None]:
    return lambda plan: [job["cc"].update(fields) for job in plan["jobs"]]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("by", "says"),
    [
        (lambda plan: plan.update(topology="../evil"), "there is no topology"),
        (lambda plan: plan.update(experiment="../../etc"), "cannot name a folder"),
        (lambda plan: plan.update(experiment=".."), "cannot name a folder"),
        (lambda plan: plan.update(version=99), "version 99"),
        (lambda plan: plan.update(jobs=[]), "less than two workers"),
        (lambda plan: plan.update(bottlenecks={"$(id)": plan["link"]}), "link"),
        (lambda plan: plan.update(bottlenecks={}), "no bottleneck"),
        (lambda plan: plan["bottlenecks"]["s1-s2"].update(trace={"name": "x", "every_ns": 1, "rates_bps": [1]}), "the rate_trace of"),
        (lambda plan: plan["bottlenecks"]["s1-s2"].update(trace={"name": "x", "every_ns": 10**8, "rates_bps": []}), "the rate_trace of"),
        (lambda plan: plan["system"].update(name="a/../../b"), "system"),
        (every_job(hosts=["l1", "../../x"]), "host"),
        (every_job(operations=[{"id": "a", "kind": "all_reduce", "after": [], "algorithm": "..os"}]), "there is no collective"),
        (every_cc(name="../../evil"), "is not 'reno'"),
        (every_cc(spec="evil", name="evil"), "there is no congestion control"),
        (every_cc(constants={"slope": 1}), "has no parameter"),
        (every_cc(spec="mltcp_reno", name="mltcp_reno", constants={"slope": 1 << 40}), "is not between"),
        (every_cc(constants={"a b=1 c": 1}), "has a name that is none"),
        (every_cc(spec="x.c", name="$(id)", source="/tmp/tcp_$(id).c"), "cannot be the file"),
        (every_cc(spec="x.c", name="a", source="/tmp/tcp_b.c"), "cannot be the file"),
    ],
)  # fmt: skip
def test_a_plan_that_no_request_leads_to(
    run: Path, by: Callable[[Manifest], None], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(run, lambda manifest: by(manifest["plan"]))
    for command in (["run", "--verify", str(run)], ["judge", str(run)]):
        assert main(command) == EXIT_REQUEST
        assert says in (said := capsys.readouterr().err) and "manifest.json" in said, said


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"topo": "leafspine,2,2,4", "workers": 4, "trace": "resnet50"}, {"cc": ["cubic+reno", "unfair:weights=3/1"]},
        {"cc": ["mltcp_dcqcn"], "ecn": "on"}, {"cc": ["cassini:over=cubic"]}, {"topo": "ring", "workers": 3, "trace": "resnet50"},
        {"cc": ["mltcp_reno:slope=2,intercept=0.5"], "delay": "1ms"}, {"topo": "examples/two_sites.py"}, {"cc": ["./tcp_own.c"]},
    ],
)  # fmt: skip
def test_what_is_planned_can_be_read_again(
    fields: dict[str, Any], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "topo" in fields and fields["topo"].endswith(".py"):
        fields = {"topo": str(root / fields["topo"])}
    (tmp_path / "tcp_own.c").write_text("")
    monkeypatch.chdir(tmp_path)
    for one in plan.plans(plan.resolve(read(None, fields))):
        again = msgspec.json.decode(msgspec.json.encode(one), type=Plan)
        assert again == one
        stored.check(again, Path("x"))


def test_a_plan_may_be_anything(tmp_path: Path) -> None:
    manifests: tuple[dict[str, Any], ...] = ({}, {"plan": None}, {"plan": []}, {"plan": {"version": "1"}})
    for manifest in manifests:
        (tmp_path / "manifest.json").write_text(json.dumps({"version": VERSION, **manifest}))
        (tmp_path / "verdict.json").write_bytes(documents.encode(VALID))
        with pytest.raises(LoadError, match=r"manifest\.json does not have the format of a run"):
            load_run(tmp_path)
