"""The congestion controls as modules of a real kernel: loaded, used, refused, unloaded; built without a warning."""

from __future__ import annotations

import errno
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import testbed
from testbed.backends import uml
from testbed.backends.usermode.kernel import Kernel
from testbed.cli import main
from testbed.core.errors import EXIT_REQUEST, MachineError, RequestError
from testbed.transports.datagram import native
from tests.support import runs
from tests.support.processes import HANG_S
from tests.support.runs import some
from tests.uml import inside

KERNEL = Path(__file__).parents[2] / "kernel"
EXAMPLES = KERNEL.parent / "examples"
TROUBLE = re.compile(r"WARNING|BUG|Oops|leak|Call Trace|refcount|tainted|Tainted|segfault")
JOB: dict[str, Any] = {"iterations": 2, "compute": "10ms", "bytes": "2MB", "jobs": 1}


def call(function: str) -> dict[str, Any]:
    return dict(json.loads(uml.find().call(f"tests.uml.inside:{function}", HANG_S)))


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return uml.find().kernel


def test_two_hundred_reloads_under_traffic() -> None:
    done = call("reload")
    assert done["rounds"] == inside.ROUNDS
    assert done["least_received"] > 100_000
    assert done["refusals"] == [errno.EAGAIN]  # in use
    assert done["left"] == [0]
    assert done["grown_kb"] < 200  # 150 rounds
    assert not set(inside.NAMES) & set(done["available"] + done["sysctls"])
    assert not TROUBLE.search(re.sub(r"loading out-of-tree module taints kernel", "", done["log"])), done["log"][-2000:]


def test_parameters_are_checked_and_belong_to_a_namespace() -> None:
    done = call("parameters")
    assert all("refuses" in words for words in done["refused"].values()), done["refused"]
    assert "mltcp_reno: slope=16385 is not between -16384 and 16384" in done["log"]
    assert "mltcp_dcqcn: g=0 is not between 1 and 512" in done["log"]
    assert not set(inside.NAMES) & set(done["before"])
    assert done["held"]["slope"] == "2048" and done["held"]["total_bytes"] == str(1 << 40)
    assert (done["here"], done["elsewhere"], done["out_of_range"]) == ("2048", "-1024", "EINVAL")


def test_an_application_may_say_what_an_iteration_is() -> None:
    """TCP_NOTSENT_LOWAT: in force from the first byte, and a quarter of it sent; the other learns a whole one."""
    done = call("override")
    assert [ratio for _, _, ratio in done["given"]] == [pytest.approx(256, abs=2)] * 4
    assert [ratio for _, _, ratio in done["learned"]] == [-1, -1, 1024, 1024]
    assert [f for _, f, _ in done["learned"]][-1] == 2048
    assert [iterations for iterations, _, _ in done["learned"]] == [0, 1, 2, 3]


def test_a_weight_of_more_than_one_needs_a_privilege() -> None:
    assert call("restricted")["answers"] == ["EPERM", "mltcp_reno"]


def test_a_loaded_module_is_used_on_host() -> None:
    done = call("found")
    assert (done["before"], done["name"], done["kind"]) == (False, "mltcp_reno", "module")


def copy(folder: Path) -> Path:
    for source in [*KERNEL.glob("*.[ch]"), KERNEL / "Kbuild"]:
        shutil.copy(source, folder)
    return folder


def build(kernel: Kernel, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-s", "-C", str(kernel.folder / "source"), f"O={kernel.folder / 'build'}", "ARCH=um", f"M={folder}", *more,
         "modules"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_no_warning_with_w1(kernel: Kernel, tmp_path: Path) -> None:
    done = build(kernel, copy(tmp_path), "W=1", "KCFLAGS=-Werror")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(tmp_path.glob("*.ko"))) == len(inside.NAMES)


@pytest.mark.slow
def test_sparse_has_nothing_to_say(kernel: Kernel, tmp_path: Path) -> None:
    if shutil.which("sparse") is None:
        pytest.skip("sparse is not installed")
    done = build(kernel, copy(tmp_path), "C=2", "CHECK=sparse")
    if "not up to date" in done.stderr:
        pytest.skip("sparse is too old for this kernel")
    assert (done.returncode, done.stderr) == (0, "")


# Types of message that are not asked for, and why.
REASONS = {
    "a parameter is one line, `P(name, …)`, and one macro is the frame of all modules":
        "MACRO_ARG_UNUSED MACRO_ARG_REUSE MACRO_ARG_PRECEDENCE COMPLEX_MACRO MULTISTATEMENT_MACRO_USE_DO_WHILE "
        "TRAILING_SEMICOLON MACRO_WITH_FLOW_CONTROL",
    "eBPF: constants of a loader, the kernel's types and functions without its headers; CAMELCASE is _Bool":
        "VOLATILE GLOBAL_INITIALISERS NEW_TYPEDEFS CAMELCASE AVOID_EXTERNS",
    "a bound and a fixed-point one are no bits": "BIT_MACRO",
    "kernel/uml/ has programs of user space": "PREFER_KERNEL_TYPES",
}  # fmt: skip
OTHER_STYLE = " ".join(REASONS.values())
NO_KERNEL = "PREFER_DEFINED_ATTRIBUTE_MACRO"  # the kernel's macros for attributes, which user space has not
CORE, DRIVERS = native.FOLDER, Path(__file__).parents[1] / "unit" / "transports"


@pytest.mark.parametrize(
    ("folders", "ignored"),
    [
        ([KERNEL, KERNEL / "bpf", KERNEL / "uml", EXAMPLES], OTHER_STYLE),
        ([CORE, DRIVERS], f"{OTHER_STYLE} {NO_KERNEL}"),
    ],
    ids=["kernel", "transports"],
)
def test_checkpatch_is_content(kernel: Kernel, folders: list[Path], ignored: str) -> None:
    sources = [source for folder in folders for source in folder.glob("*.[ch]")]
    done = subprocess.run(
        ["perl", str(kernel.folder / "source/scripts/checkpatch.pl"), "--no-tree", "--terse", "--strict", "--no-summary",
         "--max-line-length=120", "--ignore", ",".join(ignored.split()), "-f", *map(str, sorted(sources))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if re.search(r": (ERROR|WARNING|CHECK): ", line)]
    assert found == []


def test_one_of_your_own() -> None:
    """The example of docs/reference/congestion-controls.md, with a parameter: it grows four times as fast."""
    result = runs.run_plan(uml.find(), cc=[f"{EXAMPLES / 'tcp_mine.c'}:step=4"], **JOB)
    (used,) = result.manifest["congestion_controls"]
    assert (used["registered_as"], used["kind"]) == ("mine", "module")
    assert used["constants"] == {"step": 4}


@pytest.mark.parametrize(
    "name", some(("tcp_swift.c:target_us=300", "tcp_timely.c", "tcp_hpcc.c:eta=973"), "tcp_hpcc.c:eta=973")
)
def test_examples_by_delay_keep_shorter_queues(name: str, tmp_path: Path) -> None:
    results = testbed.run(
        jobs=2, rate="1gbit", compute="10ms", bytes="10MB", iterations=4, delay="50us", isolated_runs="none", on="uml",
        system=["reno", f"{EXAMPLES / name}"], out=tmp_path,
    )  # fmt: skip
    assert results.verdict == "valid"
    links = results.table("links")
    waiting = links[links["link"] == "s1-s2"].groupby("system")["backlog_bytes"].mean()
    assert waiting.drop("reno").item() < 0.7 * waiting["reno"]
    assert results.table("iterations")["system"].nunique() == 2


def test_mltcp_on_a_base_of_your_own() -> None:
    """The example learns the iteration of its flow: F takes several values."""
    result = runs.run_plan(uml.find(), cc=[f"{EXAMPLES / 'tcp_mltcp_scalable.c'}"], **{**JOB, "iterations": 8})
    (used,) = result.manifest["congestion_controls"]
    assert (used["registered_as"], used["kind"]) == ("mltcp_scalable", "module")
    flows = pd.read_csv(io.BytesIO(result.files["flows.csv"]))
    assert flows["mltcp_f"].dropna().nunique() > 1


def settled_s(system: str) -> float:
    """The last four iterations of four jobs with one frame of marking threshold for each flow."""
    fields = JOB | {
        "jobs": 4, "iterations": 14, "compute": "190ms", "bytes": "1.45MB", "rate": "200mbit", "buffer": "200p", "ecn": "4p",
    }  # fmt: skip
    iterations = runs.run_plan(uml.find(), cc=[system], **fields).table("iterations.csv")
    last = iterations[iterations["iteration"] >= 10]
    return float((last["end_s"] - last["start_s"]).mean())


def test_windows_below_two_segments_let_one_frame_a_flow_suffice() -> None:
    """Alone 250 ms; MLTCP-Reno takes 390 ms, and the example with F = 1 takes 320 ms."""
    paced = f"{EXAMPLES / 'tcp_mltcp_paced.c'}"
    took_s = settled_s(paced)
    assert took_s < 0.75 * settled_s("mltcp_reno")
    assert took_s < 0.85 * settled_s(f"{paced}:slope=0.001,intercept=1")


def wrong(tmp_path: Path, old: str, new: str, parameter: str = "") -> None:
    source = tmp_path / "tcp_mine.c"
    source.write_text((EXAMPLES / "tcp_mine.c").read_text().replace(old, new))
    runs.run_plan(uml.find(), cc=[f"{source}{parameter}"], **JOB)


def test_what_is_wrong_with_ones_own_is_said(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"built as a module[^\0]*expected"):
        wrong(tmp_path, "static int step = 2;", "static int step = ;")
    with pytest.raises(RequestError, match="GPL-incompatible module"):
        wrong(tmp_path, '"GPL"', '"Proprietary"')
    with pytest.raises(MachineError, match="the kernel refuses the module"):
        wrong(tmp_path, ".ssthresh = tcp_reno_ssthresh,", "")
    with pytest.raises(RequestError, match="stride"):
        wrong(tmp_path, "", "", ":stride=2")


def test_a_dry_run_refuses_what_does_not_compile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "tcp_mine.c"
    source.write_text((EXAMPLES / "tcp_mine.c").read_text().replace("static int step = 2;", "static int step = ;"))
    assert main(["run", "--jobs", "1", "--on", "uml", "--system", str(source), "--dry-run"]) == EXIT_REQUEST
    shown = capsys.readouterr()
    assert shown.out == "" and "could not be built as a module" in shown.err


@pytest.mark.parametrize("options", ["stride=2", "step=4,stride=2", "step=4294967296", "step=-2147483649"])
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_what_it_does_not_take_is_refused_before_anything_runs(
    options: str, dry: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = f"{EXAMPLES / 'tcp_mine.c'}:{options}"
    asked = ["run", "--jobs", "1", "--on", "uml", "--system", "reno", own, "--out", str(tmp_path / "out"), *dry]
    assert main(asked) == EXIT_REQUEST
    assert own in " ".join(capsys.readouterr().err.split()) and not list((tmp_path / "out").rglob("*.json"))


def test_an_ebpf_program_is_for_host() -> None:
    with pytest.raises(RequestError, match="use --on host"):
        runs.run_plan(uml.find(), cc=[str(EXAMPLES / "mine.bpf.c")], **JOB)
