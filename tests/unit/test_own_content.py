"""Content outside the checkout: each example runs from a folder of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed import registry, spec, testing, transports
from testbed.cli import main
from testbed.core.errors import EXIT_FAILED, EXIT_OK, EXIT_REQUEST, RequestError
from testbed.planning.plan import plans, resolve
from tests.support.paths import ROOT

TINY = ["--jobs", "2", "--iterations", "3", "--on", "flow", "--quiet", "--isolated-runs", "none"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples, outside the checkout, as the current one."""
    for path in (ROOT / "examples").iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def manifests(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("results/*/*/*/manifest.json"))]


def test_a_collective(elsewhere: Path) -> None:
    words = [
        "--collective",
        "./collective_hub.py",
        "--workers",
        "4",
        "--topo",
        "star",
        "--trace",
        "resnet50",
        "--system",
        "reno",
    ]
    assert main(["run", *TINY, *words]) == EXIT_OK
    (manifest,) = manifests(elsewhere)
    assert str(elsewhere / "collective_hub.py") in json.dumps(manifest["plan"])
    asked = manifest["asked"]
    assert isinstance(asked, dict) and asked["files"]["collective_hub.py"] == registry.sha256("./collective_hub.py")


def test_a_job_scheduler(elsewhere: Path) -> None:
    words = ["--scheduler", "./scheduler_job_backwards.py:skip=1", "--topo", "dumbbell,4", "--system", "reno"]
    assert main(["run", *TINY, *words]) == EXIT_OK
    (manifest,) = manifests(elsewhere)
    plan = manifest["plan"]
    assert isinstance(plan, dict) and plan["jobs"][0]["hosts"] == ["r3", "r2"]


def test_a_flow_scheduler(elsewhere: Path) -> None:
    assert main(["run", *TINY, "--system", "reno", "./scheduler_flow_first_wins.py:weight=4"]) == EXIT_OK
    controls = {json.dumps(found["plan"]).count("intercept=4") for found in manifests(elsewhere)}
    assert controls > {0}


def test_a_transport(elsewhere: Path) -> None:
    label = "./transport_deadline.py:after=40ms"
    plan = plans(resolve(spec.read(None, {"jobs": 1, "topo": "star", "system": [label]})))[0]
    assert plan.jobs[0].transport == f"{elsewhere / 'transport_deadline.py'}:after=40ms" and not plan.jobs[0].by_tcp
    closes = transports.parse(plan.jobs[0].transport).close("gradient")
    assert (closes.lt_s, closes.deadline_s) == (0.04, 0.04)


def test_a_queue(elsewhere: Path) -> None:
    fields = {"jobs": 2, "system": ["reno"], "on": "uml", "queue": "./queue_few_packets.py:packets=7"}
    queue = plans(resolve(spec.read(None, fields)))[0].link.queue
    assert queue is not None and queue.parameters == (("limit_packets", 7),)
    assert queue.name == str(elsewhere / "queue_few_packets.py")


def test_a_model(elsewhere: Path) -> None:
    words = ["--model", "./model_small_moe.toml", "--ep", "4", "--dp", "4", "--device", "a100", "-o", "moe.json"]
    assert main(["import", *words]) == EXIT_OK
    assert (
        main(["run", *TINY, "--topo", "star", "--trace", "./moe.json", "--rate", "100gbit", "--mtu", "9000"]) == EXIT_OK
    )
    assert all('"trace": "moe"' in json.dumps(found["plan"]) for found in manifests(elsewhere))


def test_an_importer(elsewhere: Path) -> None:
    (elsewhere / "bursts.txt").write_text("50 1000000\n120 2000000\n")
    words = ["bursts.txt", "--format", "./importer_bursts.py", "-o", "bursts.json", "--native-rate", "10gbit"]
    assert main(["import", *words, "--iteration", "200ms"]) == EXIT_OK
    assert (
        sum(one.get("bytes") is not None for one in json.loads((elsewhere / "bursts.json").read_text())["operations"])
        == 2
    )


def test_a_job_list_format(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (elsewhere / "jobs.txt").write_text("0 4 600\n10 8 1200\nnonsense\n")
    words = [
        "jobs.txt",
        "--format",
        "./joblist_lines.py",
        "--servers",
        "4",
        "--gpus",
        "8",
        "--scheduler",
        "fifo",
        "--json",
    ]
    assert main(["schedule", *words]) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["left_out"]


def test_a_figure(elsewhere: Path) -> None:
    assert main(["run", *TINY, "--name", "worst-iteration"]) == EXIT_OK
    assert main(["figures", "results", "--figure", "./figure_worst_iteration.py"]) == EXIT_OK
    assert (elsewhere / "figures/worst-iteration.png").stat().st_size > 0


def test_a_figure_without_its_experiment(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (elsewhere / "results/other").mkdir(parents=True)
    assert main(["figures", "results", "--figure", "./figure_worst_iteration.py"]) == EXIT_FAILED
    said = " ".join(capsys.readouterr().err.split())
    assert "no experiment named `worst-iteration` in results" in said and "`mltcp run --name worst-iteration`" in said
    pattern = elsewhere / "figure_worst_iteration.py"
    pattern.write_text(pattern.read_text() + 'EXPERIMENTS = "worst-*"\n')
    assert main(["figures", "results", "--figure", "./figure_worst_iteration.py"]) == EXIT_FAILED
    assert "a name like `worst-*`" in " ".join(capsys.readouterr().err.split())


def test_an_error_in_a_figure_is_located(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (elsewhere / "broken.py").write_text(
        'ID = TITLE = TEXT = "broken"\n\ndef draw(study, out):\n    return study.rums\n'
    )
    assert main(["run", *TINY, "--name", "broken", "--system", "reno"]) == EXIT_OK
    capsys.readouterr()
    assert main(["figures", "results", "--figure", "./broken.py"]) == EXIT_FAILED
    said = " ".join(capsys.readouterr().err.split())
    assert "an error in broken.py, line 4: AttributeError: " in said and "fault of this program" not in said


BROKEN_TOPOLOGY = """
from testbed.networks.routed import RoutedTopo

class Broken(RoutedTopo):
    def wire(self, n=1):
        self.router("s1")
        self.link("x", "s1", bottleneck=True)

topos = {"broken": Broken}
"""


@pytest.mark.parametrize("command", [["run", *TINY], ["schedule", "jobs.txt", "--format", "./joblist_lines.py", "--servers", "4", "--on", "flow"]])  # fmt: skip
def test_an_error_in_a_topology_is_located(
    command: list[str], elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (elsewhere / "jobs.txt").write_text("0 4 600\n")
    (elsewhere / "broken.py").write_text(BROKEN_TOPOLOGY)
    assert main([*command, "--topo", "./broken.py,2"]) == EXIT_REQUEST
    said = " ".join(capsys.readouterr().err.split())
    assert "./broken.py,2" in said and "broken.py, line 7: there is no router or host 'x'" in said


@pytest.mark.parametrize(
    ("sized", "arguments", "says"),
    [
        ("", "", "Write `./small.py,N` with a larger N, or define `sized(jobs, workers)`"),
        ("", ",1", "Write `./small.py,N` with a larger N, or define `sized(jobs, workers)`"),
        ("    sized = classmethod(lambda cls, jobs, workers: cls())\n", "", "Its method `sized(jobs, workers)` must return"),
        ("    sized = classmethod(lambda cls, jobs, workers: cls())\n", ",1", "or none (`./small.py`) to size it"),
    ],
)  # fmt: skip
def test_a_topology_that_is_too_small(
    sized: str, arguments: str, says: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = testing.TOPOLOGY.replace("n=2", "n=1")
    before, _, rest = text.partition("    @classmethod\n")
    (elsewhere / "small.py").write_text(before + sized + rest[rest.index("    def wire") :])
    assert main(["run", *TINY, "--topo", f"./small.py{arguments}"]) == EXIT_REQUEST
    said = " ".join(capsys.readouterr().err.split())
    assert says in said and "dumbbell" not in said


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with entry points to a topology and a job scheduler, under names of its own."""
    (tmp_path / "lab-1.dist-info").mkdir()
    (tmp_path / "lab-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1\n")
    (tmp_path / "lab-1.dist-info/entry_points.txt").write_text(
        "[testbed.topologies]\nlab_sites = lab_topology\n[testbed.job_schedulers]\nlab_backwards = lab_scheduler\n"
    )
    (tmp_path / "lab_topology.py").write_text(testing.TOPOLOGY)
    shutil.copy(ROOT / "examples/scheduler_job_backwards.py", tmp_path / "lab_scheduler.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.installed.cache_clear()
    yield
    registry.installed.cache_clear()


@pytest.mark.usefixtures("lab")
def test_content_of_an_installed_package(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", *TINY, "--topo", "lab_sites,3", "--scheduler", "lab_backwards:skip=0"]
    assert main(words) == EXIT_OK
    capsys.readouterr()
    assert main(["list", "job_schedulers"]) == EXIT_OK
    assert {"fifo", "lab_backwards"} <= set(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("option", "name", "close"),
    [("system", "ltpp", "ltp"), ("system", "mltcp_rno", "mltcp_reno"), ("scheduler", "fifi", "fifo"), ("trace", "resnet5", "resnet50")],
)  # fmt: skip
def test_an_unknown_word_of_a_request_has_a_suggestion(option: str, name: str, close: str) -> None:
    fields: dict[str, Any] = {option: name}
    with pytest.raises(RequestError) as caught:
        testbed.run(jobs=2, on="flow", **fields)
    assert name in str(caught.value) and f"'{close}'" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "close"),
    [(registry.COLLECTIVE, "rign", "ring"), (registry.TOPOLOGY, "dumbell", "dumbbell"), (registry.JOB_SCHEDULER, "srfs", "srsf")],
)  # fmt: skip
def test_an_unknown_name_has_a_suggestion(kind: registry.Kind, name: str, close: str) -> None:
    with pytest.raises(registry.UnknownContentError) as caught:
        registry.find(kind, name)
    assert name in str(caught.value) and f"'{close}'" in str(caught.value)
    assert caught.value.exit_code == EXIT_REQUEST


def test_a_file_that_lacks_something_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("KIND = 'all_reduce'\n")
    with pytest.raises(registry.ContentError, match="rounds"):
        registry.find(registry.COLLECTIVE, str(tmp_path / "empty.py"))
