"""How large an experiment may be: counted, and refused, before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import backends, networks, spec
from testbed.backends import host
from testbed.core.errors import RequestError
from testbed.networks.routed import RoutedTopo, TooManyError, at_most
from testbed.planning import plan
from testbed.spec import limits, sweep
from testbed.traces import collectives

ARGUMENTS = [(), (4,), (4, 6), (6, 2, 3)]


@pytest.mark.parametrize("name", collectives.names())
def test_connections_are_counted_as_they_are_made(name: str) -> None:
    for workers in (2,) if name == "send_recv" else range(2, 20):
        assert collectives.connections(name, workers) == len(collectives.flows(name, workers))


@pytest.mark.parametrize("name", networks.names())
def test_hosts_and_links_are_counted_as_they_are_made(name: str) -> None:
    cls = networks.find(name)
    for arguments in ARGUMENTS:
        try:
            topo = cls(*arguments)
        except (TypeError, ValueError):
            continue
        hosts = [node for node in topo.nodes() if not topo.isRouter(node)]
        assert cls.counts(*arguments) == (len(hosts), len(topo.links())), arguments  # type: ignore[attr-defined]


class Uncounted(RoutedTopo):
    """One of a user's own, which says nothing beforehand."""

    def wire(self) -> None:
        middle = self.router("m")
        for number in range(10**9):
            self.link(self.addHost(f"h{number}"), middle)


def test_one_that_does_not_say_is_stopped_while_it_is_made() -> None:
    with at_most(100, 1000), pytest.raises(TooManyError, match="101 hosts, and 100 is the most"):
        Uncounted()
    with at_most(100, 50), pytest.raises(TooManyError, match="51 links, and 50 is the most"):
        Uncounted()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"topo": "fattree,64"}, "65,536 hosts, and 1,024 is the most"),
        ({"topo": "fattree,1000000"}, "hosts, and 1,024 is the most"),
        ({"topo": "ring,1000"}, "2,000 hosts, and 1,024 is the most"),
        ({"topo": "leafspine,100,100,1"}, "10,100 links, and 4,096 is the most"),
        ({"topo": "star,1000000"}, "1,000,000 hosts"),
        ({"topo": "star", "jobs": 64, "workers": 64, "trace": "resnet50"}, "4,096 hosts"),
        ({"jobs": 10**6}, "jobs: 1000000 is not between 1 and 64"),
        ({"workers": 4096, "trace": "gpt-oss-20b"}, "workers: 4096 is not between 2 and 64"),
        ({"job": ["gpt2,workers=65"]}, "job.0.workers: 65 is not between 2 and 64"),
        (
            {"jobs": 64, "workers": 64, "trace": "gpt-oss-20b"},
            "258,048 connections, but at most 16,384 can be emulated",
        ),
        ({"jobs": 2, "workers": 64, "trace": "gpt-oss-20b"}, "193,536 transfers, but at most 100,000 can be emulated"),
        ({"seeds": 1000, "cc": ["reno"] * 11}, "11,000 runs, but at most 10,000 can be emulated"),
        ({"cc": ["cassini:step=1e999999999"]}, "step"),
        ({"cc": ["cassini:step=1e-999999999"]}, "step"),
    ],
    ids=str,
)
def test_what_is_too_large_is_refused_with_count_and_limit(flags: dict[str, object], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        plan.plans(plan.resolve(spec.read(None, flags)))


def test_limits_are_the_places_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        limits, "limits_for", lambda backend: limits.Limits(**{**vars(limits.LINUX), "jobs": 1000, "hosts": 10**4})
    )
    assert len(plan.plans(plan.resolve(spec.read(None, {"jobs": 65, "alone": "first"})))[0].jobs) == 65


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"jobs": 4}, "jobs: 4 is not between 1 and 3, the most that can be computed"),
        ({"job": ["gpt2,workers=5"]}, "job.0.workers: 5 is not between 2 and 3, the most that can be computed"),
        ({"topo": "star,4", "jobs": 1}, "topo: star,4: 4 hosts, and 3 is the most that can be computed"),
        ({"seeds": 4, "cc": ["reno"]}, "system: 4 runs, but at most 3 can be computed"),
    ],
    ids=str,
)
def test_a_refusal_has_the_places_own_word(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, object], says: str
) -> None:
    flow_level = limits.Limits(3, 3, hosts=3, links=99, connections=99, transfers=99, runs=3, done="computed")
    monkeypatch.setattr(limits, "limits_for", lambda backend: flow_level)
    with pytest.raises(RequestError, match=says):
        plan.plans(plan.resolve(spec.read(None, flags)))


def test_a_sweep_is_counted_before_its_points_are_made(tmp_path: Path) -> None:
    file = tmp_path / "many.toml"
    values = list(range(1, 61))
    file.write_text(
        "[sweep]\n"
        + "".join(
            f"{field} = {values}\n" for field in ("jobs", "workers", "seed", "seeds", "iterations", "channels", "mtu")
        )
    )
    with pytest.raises(RequestError, match=r"2,799,360,000,000 experiments, but the limit is 4,096\."):
        sweep.read(str(file), {})


def test_a_stored_plan_is_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan.plans(plan.resolve(spec.read(None, {"jobs": 4, "alone": "first"})))
    small = host.Host(limits=limits.Limits(**{**vars(limits.LINUX), "jobs": 3}))
    monkeypatch.setattr(host, "Host", lambda: small)
    with pytest.raises(RequestError, match="4 jobs, but at most 3 can be emulated"):
        backends.find("host", planned)
