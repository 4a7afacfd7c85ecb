"""The recorder, on real training: smallcnn over Gloo on loopback, scripts that know nothing of it."""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import IO

import pytest

from testbed.cli import record
from testbed.traces import hook, recording, trace
from testbed.traces.recording import REPORT_FD, START_FD, FileSink, Guard, say_beside
from tests.support.runs import some

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'mltcp-testbed[torch]'")
from testbed.replay.ddp import models  # noqa: E402
from testbed.traces.recorder import QUANTILES, Recorder, _DeviceClock, buckets_of, importance  # noqa: E402

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests/data/recording"  # training scripts: DistributedDataParallel, and FSDP2
PARAMETERS = {
    "resnet18": 11_689_512, "resnet50": 25_557_032, "vgg16": 138_357_544, "vgg19": 143_667_240, "smallcnn": 1_079_242,
}  # fmt: skip
LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    optimizer.zero_grad()
    model(torch.ones(4, 600)).square().mean().backward()
    optimizer.step()
"""
PLAIN = (
    """
import torch
model = torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.Linear(600, 600))
"""
    + LOOP
)
DDP = (
    """
import torch, torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(600, 600))
#OWN_HOOK#
"""
    + LOOP
    + """
dist.destroy_process_group()
"""
)
END = """
import atexit, os, sys
atexit._run_exitfuncs()
sys.stdout.flush()
os._exit(0)  # as testbed.replay.ddp.train ends, and for the same reason
"""


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # torchrun says a lot if it is not


def recorded(out: Path, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    record.add_arguments(parser)
    parser.set_defaults(run=record.run)
    parsed = parser.parse_args(["-o", str(out), *arguments])
    code: int = parsed.run(parsed)
    return code


def script(folder: Path, text: str) -> str:
    path = folder / "train.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_models_have_the_parameters_of_their_papers(name: str) -> None:
    with torch.device("meta"):
        model = models.MODELS[name]()
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]


def test_buckets_fill_from_the_last_parameter() -> None:
    assert buckets_of([3, 3, 3, 3, 1], first=2, others=5) == [[4, 3], [2, 1], [0]]
    assert buckets_of([9]) == [[0]]


class Event:
    """A CUDA event that has happened, so many ms into the step."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, later: Event) -> float:
        return later.ms - self.ms


def test_events_of_a_gpu_are_read_backwards_from_the_last() -> None:
    before = time.monotonic_ns()
    start, ready, end = _DeviceClock().read([Event(0.0), Event(1.5), Event(4.0)])
    assert (end - start, end - ready) == (4_000_000, 2_500_000)
    assert before <= end <= time.monotonic_ns()


def test_two_ranks_of_an_unchanged_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "small.json"
    code = recorded(
        out, "--native-rate", "10gbit", "--on", "two cores", "--skip", "1", "--",
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
        "-m", "testbed.replay.ddp.train", "smallcnn", "--iterations", "8",
    )  # fmt: skip
    assert code == 0
    loaded = trace.load(str(out))
    exchanges = [op for op in loaded.operations if op.bytes]
    assert loaded.bytes_per_iteration == 4 * PARAMETERS["smallcnn"]
    # DDP's rule: the first bucket is full with the large layer, the convolutions are the second
    assert [op.bytes for op in exchanges] == [4 * (1_049_600 + 10_250), 4 * (896 + 18_496)]
    assert loaded.operations[0].kind == "compute" and loaded.operations[-1].id == "optimizer"
    assert loaded.compute_s > 0 and loaded.native_rate == 10**10
    assert (loaded.name, loaded.source.kind, loaded.source.on) == ("small", "recorded", "two cores")
    assert loaded.source.measured_by.endswith("of 2 ranks") and "gloo" in loaded.source.measured_by
    assert "of a step" in capsys.readouterr().out  # how long recording took is said
    for op in exchanges:  # which of its packets matter follows from real gradients
        assert isinstance(op.importance, tuple) and len(op.importance) == QUANTILES
        assert op.importance[0] < op.importance[QUANTILES // 2] < op.importance[-1]


def test_importance_is_of_packets_beside_the_median_number() -> None:
    draw = torch.Generator().manual_seed(1)
    numbers = torch.randn(350 * 200, generator=draw) * torch.linspace(0.1, 3, 350 * 200)
    packets = sorted(
        float(numbers[at : at + 350].abs().mean() / numbers[::20].abs().median()) for at in range(0, len(numbers), 350)
    )
    found = importance([numbers[:1000], numbers[1000:]])
    assert found == pytest.approx(
        [packets[0], *(packets[round(199 * at / 10)] for at in range(1, 10)), packets[-1]], rel=0.03
    )
    assert importance([]) == importance([torch.zeros(350 * 200)]) == importance([torch.ones(350)]) == ()
    assert importance([torch.full((350 * 200,), torch.nan)]) == importance([torch.eye(700).to_sparse()]) == ()


def test_a_model_that_was_recorded_is_freed() -> None:
    class Sink:
        def imported(self) -> None: ...
        def ready(self) -> None: ...
        def __call__(self, origin: object, sample: object) -> None: ...
        def stopped(self, reason: str) -> None: ...

    model = torch.nn.Linear(600, 600)
    recorder = Recorder(model, Sink())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(4, 600)).square().mean().backward()
        optimizer.step()
    recorder.close()
    weight = weakref.ref(model.weight)
    del model, optimizer
    gc.collect()
    assert weight() is None


TORCHRUN = ["torchrun", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.slow
def test_the_environments_own_torchrun_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert record.find_program("torchrun") == str(Path(sys.executable).parent / "torchrun")
    assert record.find_program("/some/torchrun") == "/some/torchrun" and record.find_program("sh") == "sh"
    assert record.find_program("no-such-program") == "no-such-program"
    out = tmp_path / "mine.json"
    assert recorded(out, "--native-rate", "10gbit", "--", *TORCHRUN, str(DATA / "ddp.py")) == 0
    assert len([op for op in trace.load(str(out)).operations if op.bytes]) == 2


@pytest.mark.slow
def test_sharded_training_goes_on_and_is_not_recorded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "none.json"
    for _ in range(3):
        assert recorded(out, "--", *TORCHRUN, str(DATA / "fsdp2.py")) == 1
        error = capfd.readouterr().err
        assert not out.exists()
        if "SIGABRT" not in error:
            assert "Traceback" not in error and error.count("mltcp: ") == 1  # said once, by the first rank
            return
    pytest.skip(f"PyTorch aborts a rank under gloo here: {error[:4000]}")


def trained(
    folder: Path, text: str, **environment: str
) -> tuple[str, list[tuple[recording.Origin, list[recording.Sample]]], list[str]]:
    """What a script prints under the recorder, the steps that were recorded, and why recording stopped."""
    samples = folder / "samples"
    samples.mkdir()
    hooked = {"PYTHONPATH": str(hook.FOLDER), recording.RECORD: str(samples), **environment}
    done = subprocess.run(
        [sys.executable, script(folder, text)], env=os.environ | hooked, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, recording.read(samples), recording.reasons(samples)


SEED = "import torch; torch.manual_seed(0)\n"
SHOWN = "print(sum(parameter.sum().item() for parameter in model.parameters()))\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (DDP.replace("#OWN_HOOK#", "model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)"), 6),
        (DDP.replace("#OWN_HOOK#", "import copy; copy.deepcopy(model.module)"), 6),
        (DDP.replace("#OWN_HOOK#", "import io; torch.save(model, io.BytesIO())"), 6),  # the whole model, with its hooks
        (PLAIN.replace("lr=0.1", "lr=0.1)\nbefore = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1"), 5),
        (PLAIN.replace("range(6)", "range(0)") + "model.requires_grad_(False); optimizer.step()\n", 0),
        (
            PLAIN.replace("optimizer.step()", "")
            + "model[0].weight.register_post_accumulate_grad_hook(lambda one: optimizer.step())\n"
            + "model(torch.ones(4, 600)).square().mean().backward()\n",
            0,
        ),
    ],
    ids=["builtin-hook", "copied", "saved", "two-optimizers", "frozen", "step-in-backward"],
)
def test_odd_training_comes_out_as_without_the_recorder(tmp_path: Path, text: str, steps: int) -> None:
    text = SEED + text + SHOWN + (END if "DistributedDataParallel" in text else "")
    plain = subprocess.run([sys.executable, script(tmp_path, text)], check=True, capture_output=True, text=True).stdout
    printed, found, reasons = trained(tmp_path, text)
    assert printed == plain
    assert sum(len(samples) for _, samples in found) == steps
    assert bool(reasons) == (steps == 0)


# Of the recorder's own code: what it calls in each place, and which call of it fails.
PLACES = [
    ("_HostClock.mark", 1), ("_HostClock.mark", 2), ("_HostClock.mark", 9), ("_HostClock.read", 2), ("_origin", 1), ("_parameters", 1),
    ("_DataParallel.take", 3), ("_DataParallel._noted", 2), ("_DataParallel._over", 2), ("Recorder._stepped", 1), ("obstacle", 1),
    ("sharded", 1), ("Bucket", 3),
]  # fmt: skip
FAILING = """
import sys
sys.path.append({root!r})
from testbed.traces import recorder
owner, name, at = recorder, {name!r}, {at}
for part in name.split(".")[:-1]:
    owner = getattr(owner, part)
right, calls = getattr(owner, name.split(".")[-1]), 0
def wrong(*arguments, **options):
    global calls
    calls += 1
    if calls == at:
        raise RuntimeError("the recorder's own fault")
    return right(*arguments, **options)
setattr(owner, name.split(".")[-1], wrong)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "at"), some(PLACES, PLACES[2], PLACES[7], PLACES[9]))
def test_a_fault_of_the_recorder_ends_the_recording_alone(tmp_path: Path, name: str, at: int) -> None:
    text = SEED + DDP + SHOWN + END
    plain = subprocess.run([sys.executable, script(tmp_path, text)], check=True, capture_output=True, text=True).stdout
    printed, found, reasons = trained(tmp_path, FAILING.format(root=str(ROOT), name=name, at=at) + text)
    assert printed == plain
    assert len(reasons) == 1 and "the recorder's own fault" in reasons[0]
    assert sum(len(samples) for _, samples in found) < 6


def test_a_hook_that_cannot_be_imported_lets_the_script_start(tmp_path: Path) -> None:
    (tmp_path / "testbed").mkdir()
    (tmp_path / "testbed" / "__init__.py").write_text("raise RuntimeError('of the user')")
    done = subprocess.run(
        [sys.executable, "-c", "print('started')"], check=True, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": f"{hook.FOLDER}{os.pathsep}{tmp_path}", recording.RECORD: str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == "started\n" and "Traceback" not in done.stderr and done.stderr.count("\n") == 1


class Full:
    """A sink whose disk is full from the third step on, for the reason as well."""

    def __init__(self) -> None:
        self.steps = 0

    def imported(self) -> None: ...
    def ready(self) -> None: ...

    def __call__(self, origin: object, sample: object) -> None:
        self.steps += 1
        if self.steps > 2:
            raise OSError(28, "No space left on device")

    def stopped(self, reason: str) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_ends_the_recording_alone() -> None:
    sink = Full()
    guard = Guard(sink)
    model = torch.nn.Linear(60, 60)
    recorder = Recorder(model, sink, guard=guard)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        model(torch.ones(4, 60)).square().mean().backward()
        optimizer.step()
    recorder.close()
    assert guard.off and sink.steps == 3


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    origin = recording.Origin(0, 1, "model", 1, "CPU", "PyTorch")
    for at in range(3):
        sink(origin, recording.Sample(at, at + 1, (recording.Bucket(8, at, at),), 0))
    assert sink._file is not None
    sink._file.close()
    (file,) = tmp_path.glob("*.jsonl")
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        found = recording.read(tmp_path)
        assert [len(samples) for _, samples in found] == [whole[:length].count(b"\n") - 1][
            : whole[:length].count(b"\n")
        ]


@pytest.mark.slow
def test_a_script_without_ddp(tmp_path: Path) -> None:
    out = tmp_path / "plain.json"
    assert recorded(out, "--", sys.executable, script(tmp_path, PLAIN)) == 0
    loaded = trace.load(str(out))
    assert [op.bytes for op in loaded.operations if op.bytes] == [4 * 600 * 601] * 2
    assert "one rank" in loaded.assumptions[0]


def test_a_script_with_a_communication_hook_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "own.json"
    own = DDP.replace("#OWN_HOOK#", "model.register_comm_hook(None, bf16_compress_hook)") + END
    assert recorded(out, "--", sys.executable, script(tmp_path, own)) == 0
    loaded = trace.load(str(out))
    assert "bf16_compress_hook" in loaded.assumptions[0]
    assert loaded.bytes_per_iteration == 4 * 600 * 601


def test_two_lines_in_a_script(tmp_path: Path) -> None:
    lines = f"""
from testbed.traces.recorder import Recorder
recorder = Recorder(model, {str(tmp_path / "mine.json")!r}, native_rate="1gbit")
"""
    subprocess.run(
        [sys.executable, script(tmp_path, DDP.replace("#OWN_HOOK#", lines) + END)],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True,
    )  # fmt: skip
    assert trace.load(str(tmp_path / "mine.json")).native_rate == 10**9


def test_recording_changes_no_result(tmp_path: Path) -> None:
    """The hook averages as DDP does, and hands on to the sitecustomize it hides."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.hidden = 'still imported'")
    shown = "print(hidden, model.module.weight.sum().item(), model.module.bias.sum().item())"
    text = script(tmp_path, DDP + shown + END)
    torch_seed = "import torch; torch.manual_seed(0)\n"
    Path(text).write_text(torch_seed + Path(text).read_text())
    plain = {"PYTHONPATH": str(tmp_path)}
    hooked = {"PYTHONPATH": f"{hook.FOLDER}{os.pathsep}{tmp_path}", "MLTCP_RECORD": str(tmp_path)}
    said = [
        subprocess.run([sys.executable, text], env=os.environ | env, check=True, capture_output=True, text=True).stdout
        for env in (plain, hooked)
    ]
    assert said[0] == said[1] and "still imported" in said[0]
    assert list(tmp_path.glob("*.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ([], 2, "no command to record"),
        (["no-such-command"], 2, "cannot run no-such-command"),
        ([sys.executable, "-c", "raise SystemExit(7)"], 7, "failed with code 7: nothing written"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"], 143, "failed with code 143"),
        ([sys.executable, "-c", "pass"], 1, "no Python process of this command imported torch"),
        ([sys.executable, "-c", "import torch"], 1, "no optimizer took a step"),
        ([sys.executable, "-c", PLAIN.replace("range(6)", "range(5)")], 1, "only 2 step"),
    ],
)
def test_what_cannot_be_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], code: int, says: str
) -> None:
    assert recorded(tmp_path / "none.json", "--", *command) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ") and says in error
    assert not list(tmp_path.iterdir())


def test_without_torch_it_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert recorded(tmp_path / "none.json", "--", sys.executable, "-c", "import torch_is_missing") == 1
    assert "pip install 'mltcp-testbed[torch]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--native-rate", "10"], "no unit"), (["--skip", "-1"], "--skip -1"), (["-o", "/no/such/folder/x"], "no folder")],
)
def test_wrong_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert recorded(tmp_path / "none.json", *arguments, "--", "true") == 2
    assert says in capsys.readouterr().err


def rank_of(number: int, port: int) -> tuple[subprocess.Popen[bytes], IO[str], int]:
    """A rank of endless training, its reports, and the descriptor that takes the start."""
    report, told = os.pipe()
    begin, start = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "testbed.replay.ddp.train", "smallcnn", "--batch", "2", "--image", "32"],
        env=os.environ | {
            "RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo", REPORT_FD: str(told), START_FD: str(begin), "PYTHONPATH": str(ROOT),
        }, pass_fds=(told, begin),
    )  # fmt: skip
    os.close(told)
    os.close(begin)
    return process, os.fdopen(report), start


@pytest.mark.slow
def test_ranks_report_iterations_from_a_common_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ranks = [rank_of(number, port) for number in range(2)]
    try:
        assert all(json.loads(reports.readline()) == {"ready": True} for _, reports, _ in ranks)
        begin = time.monotonic_ns() + 200_000_000
        for _, _, start in ranks:
            os.write(start, json.dumps({"start_ns": begin}).encode() + b"\n")
        for _, reports, _ in ranks:
            previous = begin
            for number in range(5):
                iteration, start_ns, comm_start_ns, end_ns, sent, late = json.loads(reports.readline())
                assert (iteration, sent, late) == (number, 4 * PARAMETERS["smallcnn"], 0)
                assert previous <= start_ns < comm_start_ns < end_ns
                previous = end_ns
    finally:
        for process, reports, start in ranks:
            reports.close()
            process.kill()
            process.wait()
            os.close(start)


def test_what_became_of_messages_is_told_to_who_asks() -> None:
    reading, report = os.pipe()
    with os.fdopen(reading) as reports:
        say_beside({}, [[1, "send"]], None)  # nobody does
        say_beside({REPORT_FD: str(report)}, [[2, "send"]], {"sent": 3})
        os.close(report)
        assert [json.loads(line) for line in reports] == [{"messages": [[2, "send"]], "datagrams": {"sent": 3}}]
