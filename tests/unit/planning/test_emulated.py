"""What figures of emulated schedules take from a run: how long it took, and what equation 8 says of the same schedule."""

from __future__ import annotations

import msgspec
import pytest

from testbed import spec
from testbed.cli.schedule import emulate
from testbed.core.placing import Gpu, Request
from testbed.core.runs.load import LoadError
from testbed.models.contention import Model
from testbed.planning import plan, schedules
from testbed.report import emulated
from tests.support import runs

REQUESTS = [Request(0, 2, 30, 6_250_000, 0.01), Request(1, 6, 20, 12_345_678, 0.0123), Request(2, 8, 10, 10**6, 0.005, 0.1), Request(3, 6, 20, 10**7, 0.02)]  # fmt: skip


@pytest.mark.parametrize("scheduler", ["first_fit", "sjf_bco", "random", "tightest_fit"])
def test_equation_8_says_the_same_of_a_plan_as_of_its_schedule(scheduler: str) -> None:
    """Jumbo frames have headers of 1 %, which a plan knows of and a list of jobs does not."""
    model = Model(10e9, alpha=emulated.ALPHA, xi1=emulated.XI1)
    asked = spec.make(emulate.fields("x", REQUESTS, [4, 4, 4], model, [scheduler], ["reno"], 1), {}, "the test")
    made = next(one for one in plan.planned(asked, model)[1] if one.alone is None)
    gpus = tuple(Gpu(f"h{host}", slot) for host in (1, 2, 3) for slot in range(4))
    said = schedules.carry_out(scheduler, REQUESTS, gpus, model, seed=1)
    assert list(emulated.foretold_s(made).values()) == pytest.approx([one.end_s for one in said.ran], rel=0.015)


def test_the_ratio_is_that_of_a_large_ring() -> None:
    one = runs.one_plan(cc=["reno"], topo="cluster,4,4", scheduler="first_fit", compute="10ms", bytes="6.25MB", rate="10gbit", mtu=9000, job=[{"gpus": 1}, {"gpus": 6}])  # fmt: skip
    assert emulated.ratio(one) == pytest.approx(1.0, abs=0.02)
    assert emulated.ratio(msgspec.structs.replace(one, jobs=one.jobs[:1])) == 0


def test_jobs_without_gpus_are_none_of_it() -> None:
    with pytest.raises(LoadError, match="holds no GPUs"):
        emulated.foretold_s(runs.one_plan(cc=["reno"], jobs=1))
