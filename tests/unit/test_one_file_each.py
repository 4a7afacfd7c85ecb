"""What the house promises: a new one of its parts is one new file, which is found, checked and named by itself."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import networks, registry, spec
from testbed.core.errors import RequestError
from testbed.core.runs.plan import Plan
from testbed.planning import plan
from testbed.report import figures
from testbed.report.study import Study
from testbed.testing import COLLECTIVE, TOPOLOGY
from testbed.traces import collectives, importing

IMPORTER = """
from testbed.traces.importing import Profile
from testbed.traces.steps import Exchange, Step

TITLE = "one number, the bytes of an all-reduce"
USES = frozenset({"iteration"})

def recognises(head, path):
    return head.startswith(b"toy ")

def read(path, request):
    size = int(path.read_text().split()[1])
    return Profile([Step(1.0, (Exchange("all_reduce", size, 0.5, 0.75),))] * 3, measured_by="nobody")
"""

FLOW_SCHEDULER = """
from dataclasses import dataclass

from testbed.core.options import Number, option
from testbed.schedulers.flow import Rule, Sharing

@dataclass(frozen=True)
class Options:
    over: str = option("cubic", "what carries the bytes", str)
    urge: float = option(1.0, "how much it matters", Number(0, 2))

def share(jobs, links, options):
    return Sharing(tuple(Rule(options.over) for _ in jobs), {"urge": options.urge})
"""

JOB_SCHEDULER = '''
from dataclasses import dataclass

from testbed.core.options import option
from testbed.schedulers.job import at_once, check_room

@dataclass(frozen=True)
class Options:
    skip: int = option(0, "hosts left free at first", int)

def schedule(requests, cluster, model, options, *, seed):
    """From the last host to the first."""
    check_room(requests, cluster)
    free = iter(cluster.gpus[::-1][options.skip:])
    return at_once(requests, [[next(free) for _ in range(request.gpus)] for request in requests], model)
'''

FIGURE = """
ID = "toy"
TITLE = "A toy"
TEXT = "What one sees."

def draw(study, out):
    (out / "toy.csv").write_text("runs\\\\n")
    return [out / "toy.csv"]
"""


Add = Callable[[registry.Kind, str], None]


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Add]:
    """Puts one file, ``toy.py``, where a package looks for its parts, for the length of a test."""

    def add(kind: registry.Kind, text: str) -> None:
        (tmp_path / "toy.py").write_text(text)
        package = importlib.import_module(kind.packages[-1])
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
        monkeypatch.delitem(sys.modules, f"{package.__name__}.toy", raising=False)
        forget()

    def forget() -> None:
        for found in (registry.names, registry._modules, collectives.find, importing.find):
            found.cache_clear()

    yield add
    forget()


def contended(**fields: object) -> Plan:
    """The first run that is not of a job alone."""
    return next(made for made in plan.plans(plan.resolve(spec.read(None, dict(fields)))) if made.alone is None)


def test_a_topology(add: Add) -> None:
    add(registry.TOPOLOGY, TOPOLOGY)
    assert "toy" in networks.names()
    made = contended(topo="toy", jobs=2)
    assert set(made.bottlenecks) == {"left-right", "right-left"} and made.jobs[1].hosts == ("a2", "b2")


def test_a_topology_may_stay_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TOPOLOGY)
    assert set(contended(topo=str(tmp_path / "mine.py"), jobs=2).bottlenecks) == {"left-right", "right-left"}


def test_a_collective(add: Add) -> None:
    add(registry.COLLECTIVE, COLLECTIVE)
    made = contended(jobs=1, workers=4, trace="resnet50", collective="toy")
    assert {operation.algorithm for operation in made.jobs[0].collectives} == {"toy"}
    first, *others = made.jobs[0].bytes_per_worker
    assert others == [first // 3] * 3


def test_an_importer(add: Add, tmp_path: Path) -> None:
    profile = tmp_path / "recorded"
    profile.write_text("toy 1000000\n")
    add(registry.IMPORTER, IMPORTER)
    assert importing.detect(profile) == "toy"
    assert (
        importing.import_trace([profile], importing.Request(), name="mine", model="a toy").bytes_per_iteration == 10**6
    )


def test_a_flow_scheduler(add: Add) -> None:
    add(registry.FLOW_SCHEDULER, FLOW_SCHEDULER)
    made = contended(cc=["toy:urge=2"])
    assert made.schedule == {"urge": 2.0} and [job.cc.spec for job in made.jobs] == ["cubic", "cubic"]
    with pytest.raises(RequestError, match=r"'x=1' in 'toy:x=1'.* urge \(how much it matters\)"):
        contended(cc=["toy:x=1"])
    with pytest.raises(RequestError, match="urge in 'toy:urge=3': 3 is not between 0 and 2"):
        contended(cc=["toy:urge=3"])


def test_a_job_scheduler(add: Add) -> None:
    add(registry.JOB_SCHEDULER, JOB_SCHEDULER)
    assert [job.hosts for job in contended(topo="dumbbell,3", place="toy").jobs] == [("r3", "r2"), ("r1", "l3")]
    assert contended(topo="dumbbell,3", place="toy:skip=2").jobs[0].hosts == ("r1", "l3")
    with pytest.raises(RequestError, match=r"'x=1' in 'toy:x=1'.* skip \("):
        contended(place="toy:x=1")


def test_a_figure(add: Add, tmp_path: Path) -> None:
    add(registry.FIGURE, FIGURE)
    last = figures.every()[-1]
    assert last.ID == "toy"
    study = Study("toy", (), ())
    assert last.draw(study, tmp_path) == [tmp_path / "toy.csv"]
