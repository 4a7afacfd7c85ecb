"""The public interface: `testbed.run`, `sweep`, `load`, the results, the errors, the fixtures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.figure import Figure

import testbed
from testbed.core.runs.load import load_run
from testbed.errors import LoadError, MachineError, RequestError, TestbedError
from testbed.testing import FakeKernel
from tests.support.paths import ROOT
from tests.support.runs import some

TINY: dict[str, Any] = {"jobs": 2, "iterations": 3, "on": "flow", "isolated_runs": "none"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder outside the checkout as the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_a_run_to_its_results(elsewhere: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = mpl.rcParams["font.size"], mpl.rcParams["axes.grid"], mpl.get_backend()
    results = testbed.run(topo="dumbbell", system=["reno", "mltcp_reno"], seeds=2, **TINY)
    assert results.path.is_relative_to(elsewhere / "results") and (results.path / "summary.json").is_file()
    assert (results.verdict, results.reasons) == ("valid", ())
    assert list(results.summary["system"]) == ["reno", "mltcp_reno"]
    assert list(results.summary["seeds"]) == [[1, 2], [1, 2]]
    assert isinstance(results.plot("interleaving"), Figure)
    assert {"iterations", "operations", "links", "flows"} <= set(results.tables)
    for name in results.tables:
        table = results.table(name)
        assert isinstance(table, pd.DataFrame) and list(table.columns[:2]) == ["system", "seed"]
        assert set(zip(table["system"], table["seed"], strict=True)) == {
            (system, seed) for system in ("reno", "mltcp_reno") for seed in (1, 2)
        }
    assert testbed.load(results.path.relative_to(elsewhere)) == results
    assert (mpl.rcParams["font.size"], mpl.rcParams["axes.grid"], mpl.get_backend()) == settings
    assert capfd.readouterr() == ("", "")


def test_isolated_runs_are_in_no_table() -> None:
    results = testbed.run(**{**TINY, "isolated_runs": "each"}, system="reno")
    assert set(results.table("iterations")["job"]) == {0, 1}
    assert len(results.table("iterations")) == 2 * 2 * 3  # jobs, workers, iterations


def test_a_file_and_fields_that_win(elsewhere: Path) -> None:
    (elsewhere / "experiment.toml").write_text('jobs = 3\niterations = 3\nrate = "200mbit"\n')
    results = testbed.run("experiment.toml", jobs=2, on="flow", cc="reno", out=elsewhere / "other")
    assert results.path.parent == elsewhere / "other"
    (path,) = results.path.glob("reno/1")
    plan = load_run(path).plan
    assert (len(plan.jobs), plan.link.rate_bps) == (2, 200_000_000)


def test_seeds_are_a_number_or_a_list() -> None:
    assert set(testbed.run(**TINY, system="reno", seed=3).table("links")["seed"]) == {3}
    assert set(testbed.run(**TINY, system="reno", seeds=[5, 8, 9]).table("links")["seed"]) == {3, 5, 8, 9}
    with pytest.raises(RequestError):
        testbed.run(**TINY, seeds=[])


@pytest.mark.parametrize(
    ("fields", "named"), [({"sytem": "reno"}, "system"), ({"jobs": 0}, "jobs"), ({"system": "renoo"}, "renoo")]
)
def test_a_wrong_request(fields: dict[str, object], named: str, elsewhere: Path) -> None:
    with pytest.raises(RequestError) as error:
        testbed.run(**{**TINY, **fields})
    assert named in str(error.value) and error.value.exit_code == 2
    assert not (elsewhere / "results").exists()


def test_a_failed_run_raises_and_an_invalid_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TestbedError) as error:
        testbed.run(**{**TINY, "iterations": 100_000, "jobs": 8}, system="reno", wall_limit="1us")
    assert error.value.exit_code == 1
    results = testbed.run(**TINY, system="reno")
    path = results.path / "summary.json"
    path.write_bytes(path.read_bytes().replace(b'"verdict": "valid"', b'"verdict": "invalid"'))
    assert testbed.load(results.path).verdict == "invalid"


def test_nothing_to_load(elsewhere: Path) -> None:
    with pytest.raises(LoadError):
        testbed.load("results/none")
    results = testbed.run(**TINY, system="reno")
    for name in ("iteratons", "../secret"):
        with pytest.raises(RequestError):
            results.table(name)
    with pytest.raises(RequestError):
        results.plot("interleavin")


def test_in_a_thread_signal_handlers_stay() -> None:
    before, found = signal.getsignal(signal.SIGINT), list[object]()
    thread = threading.Thread(target=lambda: found.append(testbed.run(**TINY, system="reno").verdict))
    thread.start()
    thread.join()
    assert found == ["valid"] and signal.getsignal(signal.SIGINT) is before


def test_a_sweep(elsewhere: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (elsewhere / "a.toml").write_text('jobs = 2\non = "flow"\n[sweep]\nrate = ["100mbit", "1gbit"]\n')
    (elsewhere / "b.toml").write_text('jobs = 3\non = "flow"\n')
    found = testbed.sweep("*.toml", iterations=3, isolated_runs="none", system="reno")
    assert [results.path.name for results in found] == ["a.rate-100mbit", "a.rate-1gbit", "b"]
    with pytest.raises(RequestError):
        testbed.sweep("*.tml")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("executor", some(["local", "dask"], "local", mark=pytest.mark.slow))
def test_a_sweep_on_an_executor(executor: str, elsewhere: Path) -> None:
    """Two at a time, in processes of their own: the same tables as one after the other in this process."""
    (elsewhere / "a.toml").write_text('jobs = 2\non = "flow"\n[sweep]\nrate = ["100mbit", "1gbit"]\n')
    fields: dict[str, Any] = {"iterations": 3, "isolated_runs": "none", "system": "reno"}
    found = testbed.sweep("a.toml", executor=executor, parallel=2, out="two", **fields)
    for each, alone in zip(found, testbed.sweep("a.toml", out="one", **fields), strict=True):
        assert each.path.name == alone.path.name and each.path != alone.path
        pd.testing.assert_frame_equal(each.table("iterations"), alone.table("iterations"))


def test_toy_content(toy_topology: str, toy_collective: str, toy_trace: str, fake_kernel: FakeKernel) -> None:
    results = testbed.run(
        topo=toy_topology, collective=toy_collective, trace=toy_trace, workers=4, system="reno", **TINY
    )
    assert results.verdict in ("valid", "suspect")
    fake_kernel.set_sysctl("h1", "net.ipv4.tcp_sack", "1")
    assert fake_kernel.calls and fake_kernel.sysctl("h1", "net.ipv4.tcp_sack") == "1"


def test_the_import_is_light() -> None:
    code = "import sys, testbed; sys.exit(sorted({'pandas', 'numpy', 'msgspec'} & sys.modules.keys()) or 0)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT)})


def test_the_error_tree() -> None:
    for name in testbed.errors.__all__:
        assert issubclass(getattr(testbed.errors, name), TestbedError)
    assert (TestbedError.exit_code, RequestError.exit_code, MachineError.exit_code) == (1, 2, 3)


NOTEBOOK = ROOT / "docs/notebooks/own_figure.py"


@pytest.mark.slow
def test_the_notebook_as_a_script(elsewhere: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    subprocess.run([sys.executable, NOTEBOOK], check=True, env=variables)
    assert (elsewhere / "own_figure.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_notebook_in_a_kernel(elsewhere: Path) -> None:
    """In a process of its own: Jupyter's libraries warn, and a warning is an error here. The kernel runs in the current folder."""
    pytest.importorskip("nbclient", exc_type=ImportError)
    program = (
        "import sys, jupytext, nbclient\n"
        "notebook = jupytext.read(sys.argv[1])\n"
        "nbclient.NotebookClient(notebook, kernel_name='python3', timeout=600).execute()\n"
        "jupytext.write(notebook, 'executed.ipynb')\n"
    )
    variables = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}
    subprocess.run([sys.executable, "-c", program, NOTEBOOK], check=True, env={**variables, "PYTHONPATH": str(ROOT)})
    cells = json.loads((elsewhere / "executed.ipynb").read_text())["cells"]
    outputs = [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]
    assert [set(output.get("data", {})) for output in outputs] == [{"image/png", "text/plain"}]  # a figure, and no text


SNIPPET = """\
import testbed

results = testbed.run(topo="dumbbell", jobs=4, system=["reno", "mltcp_reno"], on="uml", seeds=3)
print(results.path.name, results.verdict.upper(), ", ".join(results.reasons))
print(results.summary["system"], results.table("iterations")["start_s"])
results.plot("interleaving").savefig("figure.png")
print(testbed.load("results/NAME").path == testbed.run("experiment.toml").path)
for each in testbed.sweep("experiments/*.toml", executor="dask:tcp://127.0.0.1:8786"):
    print(each.verdict)
try:
    testbed.load("results/none")
except testbed.errors.RequestError as error:
    print(error.exit_code + 1)
"""


@pytest.mark.slow
def test_types_of_a_user(elsewhere: Path) -> None:
    (elsewhere / "snippet.py").write_text(SNIPPET)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={ROOT}/.mypy_cache/user"]
    done = subprocess.run(
        [*mypy, "snippet.py"], check=False, capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_systems_as_tables_are_in_the_recorded_command() -> None:
    systems = [
        {"congestion": "reno"},
        {"congestion": "mltcp_reno", "congestion_options": {"slope": 1.0}, "label": "my F"},
    ]
    results = testbed.run(**TINY, system=systems)
    assert list(results.summary["system"]) == ["reno", "my F"]
    manifest = json.loads(next(results.path.glob("mltcp_reno-*/1/manifest.json")).read_text())
    assert manifest["command"][:2] == ["mltcp", "run"] and "mltcp_reno:slope=1.0,label=my F" in manifest["command"]
