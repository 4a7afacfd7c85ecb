import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.core.units import Duration, Rate, Size
from testbed.spec import make
from testbed.traces import trace


def minimal() -> dict[str, Any]:
    return {
        "version": 1,
        "name": "mine",
        "model": "a model",
        "native_rate": "10gbit",
        "source": {"kind": "synthetic"},
        "operations": [
            {"id": "backward", "kind": "compute", "duration": "10ms"},
            {"id": "bucket", "kind": "all_reduce", "bytes": "1MB", "after": ["backward"]},
        ],
    }


def write(folder: Path, content: Any) -> str:
    path = folder / "mine.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_library_is_valid_and_says_where_it_comes_from() -> None:
    assert {"resnet50", "vgg16", "vgg19", "bert-base", "gpt2", "gpt2-xl", "dlrm", "pipeline", "s1", "s2", "s3"} < set(
        trace.names()
    )
    for name in trace.names():
        loaded = trace.load(name)
        assert loaded.name == name
        assert loaded.source.measured_by


def test_resnet50_has_the_gradients_of_the_model() -> None:
    # 25 557 032 parameters of four bytes (torchvision); 82 ms of a 222 ms step at 10 Gbit/s
    loaded = trace.load("resnet50")
    assert loaded.bytes_per_iteration == pytest.approx(4 * 25_557_032, rel=1e-6)
    assert loaded.bytes_per_iteration * 8 / 10e9 == pytest.approx(0.082, abs=0.001)
    assert loaded.compute_s + 0.00169 == pytest.approx(0.222, abs=0.001)
    assert "native_rate" in loaded.assumptions[0]


@pytest.mark.parametrize(
    ("name", "parameters", "step_s"),
    [
        ("vgg16", 138_357_544, 32 / 144),
        ("vgg19", 143_667_240, 32 / 108.83),
        ("bert-base", 110_106_428, 32 / 119.6),  # BertForPreTraining
        ("gpt2", 124_439_808, 0.135),
        ("gpt2-xl", 1_557_611_200, 0.898),
    ],
)
def test_recorded_traces_have_all_gradients_and_the_published_times(name: str, parameters: int, step_s: float) -> None:
    loaded = trace.load(name)
    assert loaded.bytes_per_iteration == 4 * parameters
    assert loaded.compute_s == pytest.approx(step_s, rel=1e-3)
    assert loaded.source.kind == "recorded, times scaled" and "github.com" in loaded.source.notes


def test_scaling_keeps_times_and_scales_bytes(tmp_path: Path) -> None:
    scaled = trace.load(write(tmp_path, minimal())).scaled(500_000_000)
    assert scaled.operations[0].duration == 10_000_000
    assert scaled.operations[1].bytes == 50_000
    synthetic = trace.synthetic(Duration.parse("1s"), Size.parse("1MB"))
    assert synthetic.scaled(1_000_000) is synthetic


def test_critical_path_overlaps_communication_with_computing() -> None:
    loaded = trace.load("resnet50").scaled(Rate.parse("10gbit"))
    free = trace.critical_path_s(loaded, lambda op: 0.0)
    assert free == pytest.approx(loaded.compute_s)
    # 85.5 ms of wire time hide behind 83 ms of backward; the rest of the last buckets does not
    busy = trace.critical_path_s(loaded, lambda op: (op.bytes or 0) * 8 / 10e9 * 1514 / 1448)
    assert free < busy == pytest.approx(0.2289, abs=0.0005)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 3}, "version 3"),
        ({"version": None}, "version None"),
        ({"operations": []}, "operations is empty"),
        ({"operations": [{"id": "a", "kind": "compute"}]}, r"operations\[0\] \('a'\): a compute has a duration"),
        ({"operations": [{"id": "a", "kind": "all_reduce", "bytes": "0B"}]}, "more than none"),
        ({"operations": [{"id": "a", "kind": "all_reduce", "bytes": 7}]}, "needs a unit"),
        ({"operations": [{"id": "a", "kind": "dance"}]}, r"Invalid enum value 'dance' - at `\$.operations\[0\].kind`"),
        (
            {"operations": [{"id": "a", "kind": "broadcast", "bytes": "1MB", "algorithm": "ring"}]},
            "algorithm 'ring' does not carry out broadcast; there are: broadcast",
        ),
        ({"noise": "2"}, "noise: the fraction '2' is not between"),
        ({"operations": 3}, r"at `\$.operations`"),
        ({"nativ_rate": "1gbit"}, "unknown field `nativ_rate`"),
        ({"native_rate": "10"}, "no unit"),
    ],
)
def test_refuses_with_the_field(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(trace.TraceError, match=says) as error:
        trace.load(write(tmp_path, minimal() | change))
    assert "mine.json" in str(error.value)


def test_refuses_loops_and_doubles(tmp_path: Path) -> None:
    twice = minimal()
    twice["operations"] = [twice["operations"][0]] * 2
    with pytest.raises(trace.TraceError, match="used twice"):
        trace.load(write(tmp_path, twice))
    later = minimal()
    later["operations"][0]["after"] = ["bucket"]
    with pytest.raises(trace.TraceError, match="no earlier operation"):
        trace.load(write(tmp_path, later))


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00\xff", '{"version": 1}'])
def test_refuses_what_is_no_trace(tmp_path: Path, content: str) -> None:
    with pytest.raises(trace.TraceError):
        trace.load(write(tmp_path, content))


def test_unknown_name_lists_the_library() -> None:
    with pytest.raises(trace.TraceError, match="resnet50"):
        trace.load("resnet5")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet50", 25_557_032), ("vgg16", 138_357_544), ("vgg19", 143_667_240),
        ("bert-base", 110_106_428), ("gpt2", 124_439_808), ("gpt2-xl", 1_557_611_200),
    ],
)  # fmt: skip
def test_data_parallel_traces_carry_their_models_gradients(name: str, parameters: int) -> None:
    assert trace.load(name).bytes_per_iteration == 4 * parameters


@pytest.mark.parametrize("name", trace.names())
def test_what_is_saved_is_loaded(name: str, tmp_path: Path) -> None:
    loaded = trace.load(name)
    trace.save(loaded, tmp_path / "again.json")
    assert trace.load(str(tmp_path / "again.json")) == loaded


def test_saving_writes_through_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the name of the file written beside is known beforehand."""
    monkeypatch.setattr("testbed.traces.trace.secrets.token_hex", lambda nbytes: "known")
    victim, out = tmp_path / "victim", tmp_path / "mine.json"
    victim.write_text("untouched")
    for name in (".mine.json.new", ".known.new"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(FileExistsError):
        trace.save(trace.load("resnet50"), out)
    assert victim.read_text() == "untouched"
    assert (tmp_path / ".known.new").is_symlink()
    assert not out.exists()


def test_saving_replaces_a_link_by_the_trace(tmp_path: Path) -> None:
    victim, out = tmp_path / "victim", tmp_path / "mine.json"
    victim.write_text("untouched")
    for name in ("mine.json", ".mine.json.new"):
        (tmp_path / name).symlink_to(victim)
    trace.save(trace.load("resnet50"), out)
    assert victim.read_text() == "untouched"
    assert not out.is_symlink()


def test_what_could_not_be_saved_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "mine.json").mkdir()
    with pytest.raises(OSError):
        trace.save(trace.load("resnet50"), tmp_path / "mine.json")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]


def test_a_synthetic_all_reduce_overlaps_its_backward_pass() -> None:
    """Four buckets: a third of the computing comes before the first, the rest in equal parts."""
    found = trace.synthetic(Duration.parse("900ms"), Size.parse("10MB"), "all_reduce", buckets=4)
    computing = [int(op.duration or 0) for op in found.operations if op.kind == "compute"]
    exchanged = [int(op.bytes or 0) for op in found.operations if op.kind == "all_reduce"]
    assert computing == [450_000_000, 150_000_000, 150_000_000, 150_000_000]
    assert exchanged == [2_500_000] * 4
    assert [op.after for op in found.operations if op.kind == "all_reduce"] == [(f"compute{n}",) for n in range(4)]


@pytest.mark.parametrize(
    ("workers", "collective", "kind"),
    [(2, None, "send_recv"), (2, "ring", "all_reduce"), (3, None, "all_reduce"), (4, "all_to_all", "all_to_all")],
)
def test_what_a_synthetic_job_exchanges(workers: int, collective: str | None, kind: str) -> None:
    flags = {"compute": "100ms", "bytes": "1MB", "workers": workers, "jobs": 1} | (
        {"collective": collective} if collective else {}
    )
    (job,) = make({}, flags, "the test").all_jobs
    assert {op.kind for op in job.read_trace().operations} == {"compute", kind}


@pytest.mark.parametrize("importance", [0.7, [0.2, 0.9, 3]])
def test_a_collective_says_the_importance_of_its_packets(importance: object, tmp_path: Path) -> None:
    one = {"id": "a", "kind": "all_reduce", "bytes": "1MB", "importance": importance}
    (op,) = trace.load(write(tmp_path, minimal() | {"operations": [one]})).operations
    assert op.importance == (tuple(importance) if isinstance(importance, list) else importance)


@pytest.mark.parametrize(
    ("importance", "kind"),
    [(1.5, ""), (-0.1, ""), ([1], ""), ([2, 1], ""), ([-1, 1], ""), ([0.1] * 102, ""), ("much", ""), (0.5, "compute")],
)
def test_an_importance_that_is_none_is_refused(importance: object, kind: str, tmp_path: Path) -> None:
    one = {"id": "a", "kind": "all_reduce", "bytes": "1MB", "importance": importance}
    if kind:
        one = {"id": "a", "kind": kind, "duration": "1ms", "importance": importance}
    with pytest.raises(trace.TraceError, match="importance"):
        trace.load(write(tmp_path, minimal() | {"operations": [one]}))


def test_writes_nothing_that_it_would_not_read(tmp_path: Path) -> None:
    loaded = trace.load(write(tmp_path, minimal()))
    operations = tuple(
        trace.Operation(id=f"{number}{'x' * 900}", kind="compute", duration=Duration(5)) for number in range(19_000)
    )
    with pytest.raises(trace.TraceError):
        trace.save(msgspec.structs.replace(loaded, operations=operations), tmp_path / "large.json")
    assert not (tmp_path / "large.json").exists()
