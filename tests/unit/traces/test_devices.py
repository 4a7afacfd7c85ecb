"""Work of a trace, turned into time."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed import spec
from testbed.core.errors import RequestError
from testbed.core.units import Size
from testbed.planning.plan import planned
from testbed.traces import devices
from testbed.traces.devices import Bandwidth, ComputesOn, Flops
from testbed.traces.trace import Operation, Source, Trace, load, save


def by_work(folder: Path) -> str:
    trace = Trace(
        version=2, name="work", model="a model", source=Source(kind="synthetic"),
        operations=(
            Operation(id="matrix", kind="compute", flops=312e12 * 0.4 / 100),
            Operation(id="vector", kind="compute", flops=1.0, memory_bytes=Size.parse("20.39GB")),
            Operation(id="gradients", kind="all_reduce", bytes=Size(10**6), after=("vector",)),
        ),
    )  # fmt: skip
    save(trace, folder / "work.json")
    return str(folder / "work.json")


def computing_ns(**fields: Any) -> list[int]:
    (plan,) = planned(spec.read(None, {"jobs": 1, "system": ["reno"], "isolated_runs": "none", **fields}))[1]
    return [op.duration_ns or 0 for op in plan.jobs[0].operations if op.computes]


def test_the_slower_of_operations_and_memory_decides(tmp_path: Path) -> None:
    trace = by_work(tmp_path)
    assert computing_ns(trace=trace, device="a100") == [10**7, 10**7]
    assert computing_ns(trace=trace, device="a100", mfu="20%", memory="1tb/s") == [2 * 10**7, 20_390_000]
    assert computing_ns(trace=trace, peak="312tflops", memory="2.039tb/s") == [10**7, 10**7]
    assert computing_ns(trace=trace, device="H100")[0] < 10**7


def test_another_share_of_the_peak_of_its_own_device(tmp_path: Path) -> None:
    path = by_work(tmp_path)
    own = msgspec.structs.replace(load(path), device=ComputesOn("a100"))
    save(own, tmp_path / "own.json")
    half = computing_ns(trace=str(tmp_path / "own.json"), mfu="20%")
    assert half == [2 * 10**7, 10**7]  # memory is as fast as before
    assert computing_ns(trace=str(tmp_path / "own.json")) == [10**7, 10**7]
    asked = {"job": [str(tmp_path / "own.json"), "synthetic,compute=1ms,bytes=1MB"], "mfu": "20%", "system": ["reno"]}
    assert planned(spec.read(None, asked | {"isolated_runs": "none"}))
    for trace in ({"trace": path}, {"trace": "resnet50"}, {"compute": "1ms", "bytes": "1MB"}):
        with pytest.raises(RequestError, match="mfu"):
            computing_ns(**trace, mfu="20%")


def test_a_job_has_a_device_of_its_own(tmp_path: Path) -> None:
    trace = by_work(tmp_path)
    asked = {"job": [f"{trace},device=h100", trace], "device": "a100", "system": ["reno"], "isolated_runs": "none"}
    (plan,) = planned(spec.read(None, asked))[1]
    first, second = ([op.duration_ns or 0 for op in job.operations if op.computes] for job in plan.jobs)
    assert first == computing_ns(trace=trace, device="h100") and second == [10**7, 10**7]
    with pytest.raises(RequestError, match=r"job\.0"):
        spec.read(None, {**asked, "job": [f"{trace},device=abacus"]})


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"device": "abacus"}, {"peak": "312tflops"}, {"memory": "2tb/s"}, {"mfu": "40%"}, {"device": "a100", "mfu": "0%"},
        {"device": "a100", "peak": "0tflops"}, {"device": "a100", "peak": "312"}, {"device": "a100", "mfu": "140%"},
        {"peak": "1e-9gflops", "memory": "1tb/s"},
    ],
)  # fmt: skip
def test_refuses_what_gives_no_time(fields: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RequestError) as error:
        computing_ns(trace=by_work(tmp_path), **fields)
    assert error.value.exit_code == 2


def test_every_device_has_both_limits() -> None:
    for name in devices.KNOWN:
        device = devices.device(name, None, None, None)
        assert device is not None and 0 < device.takes(10**12, None) < 10**9 and device.takes(None, 10**9) > 0
    assert devices.device(None, None, None, None) is None
    assert str(Flops.parse("312tflops").exact) == "312tflops" and Bandwidth.parse("2tb/s") == 2 * 10**12
