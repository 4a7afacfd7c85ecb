"""Hosts as they are: an interface's rate and queue, from what is asked for to what is sent to the kernel."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from testbed.cli import flags as cli_flags
from testbed.core.errors import RequestError
from testbed.linux import setup_steps
from testbed.linux.features import user_mode
from testbed.linux.queues.fifo import Fifo
from testbed.linux.queues.fq import Fq
from testbed.linux.queues.setting import Nic
from testbed.linux.settings import Setting
from testbed.planning.plan import planned
from testbed.spec import make


def steps(**flags: Any) -> list[object]:
    plan = planned(make({}, {"on": "uml", **flags}, "the test"))[1][0]
    return [step.change for step in setup_steps.changes(plan, user_mode())]


def nics(**flags: Any) -> list[Nic]:
    return [change for change in steps(**flags) if isinstance(change, Nic)]


def sysctl(key: str, **flags: Any) -> set[str]:
    return {change.asked for change in steps(**flags) if isinstance(change, Setting) and change.what == key}


def test_without_a_rate_a_host_has_no_queue() -> None:
    assert nics(nic="inf") == []


def test_every_host_has_an_interface_of_its_own() -> None:
    found = nics(nic="100%", jobs=2)
    assert sorted(each.link for each in found) == ["l1-s1", "l2-s1", "r1-s2", "r2-s2"]
    assert {each.root.rate_bps for each in found} == {500_000_000}
    assert found[0].root.below == Fifo(1_250_000, made_above=True)  # 20 ms


def test_an_interface_may_be_faster_or_slower_than_the_links() -> None:
    assert nics(nic="2gbit")[0].root.rate_bps == 2_000_000_000
    assert nics(nic="50%")[0].root.rate_bps == 250_000_000


@pytest.mark.parametrize(
    ("queue", "below"),
    [("fq", Fq(frame_bytes=1514)), ("none", Fifo(1 << 30, made_above=True)), ("pfifo_fast:100kB", Fifo(100_000, made_above=True))],
)  # fmt: skip
def test_the_queue_before_it(queue: str, below: object) -> None:
    assert nics(nic="100%", host_queue=queue)[0].root.below == below


def test_hosts_that_are_bottlenecks_have_no_second_queue() -> None:
    assert nics(nic="100%", topo="star") == []


def test_what_a_host_limits_in_bytes_is_scaled() -> None:
    """1 MB at 50 Gbit/s is 10 kB at 500 Mbit/s."""
    assert sysctl("net.ipv4.tcp_limit_output_bytes") == set()
    assert sysctl("net.ipv4.tcp_limit_output_bytes", represents_rate="50gbit") == {str((1 << 20) // 100)}


def test_a_send_buffer_is_what_was_asked_for() -> None:
    assert sysctl("net.ipv4.tcp_wmem", sndbuf="128kB") == {"4096 128000 128000"}


def test_a_window_may_shrink_while_nothing_is_sent() -> None:
    assert sysctl("net.ipv4.tcp_slow_start_after_idle", slow_start_after_idle=1) == {"1"}


@pytest.mark.parametrize(
    "flags", [{"nic": "fast"}, {"nic": "1kbit"}, {"host_queue": "codel"}, {"host_queue": "pfifo_fast:0ms"}, {"represents_rate": "1mbit"}],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(flags: dict[str, str]) -> None:
    with pytest.raises(RequestError):
        steps(**flags)


def test_what_the_kernel_shows_of_fq_is_what_was_sent() -> None:
    queue = Fq()
    assert queue.held(queue.options(), (), ()) == queue.asked(1)


@pytest.mark.parametrize("flag", ["--represents-rate", "--scale-of"])
def test_the_represented_rate_has_a_hidden_alias(flag: str) -> None:
    parser = argparse.ArgumentParser()
    cli_flags.add(parser, "represents_rate")
    assert vars(parser.parse_args([flag, "50gbit"])) == {"represents_rate": "50gbit"}
    assert "--scale-of" not in parser.format_help()
    assert make({"scale_of": "50gbit"}, {}, "x.toml") == make({"represents_rate": "50gbit"}, {}, "x.toml")
