"""One campaign by processes here, by Dask, by submitit: the same bytes, whatever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from distributed.security import Security

from testbed.campaign.executors import dask
from testbed.campaign.provenance import source_sha256
from testbed.cli import main
from testbed.core import locks
from testbed.core.errors import EXIT_INTERRUPTED, EXIT_MACHINE
from testbed.core.runs.determinism_log import Sample, read
from testbed.core.runs.load import TABLES, check, load_run
from tests.support import processes, runs
from tests.support.runs import INTERRUPTIBLE, ROOT

CAMPAIGN = """
name = "tiny"
jobs = 1
iterations = 2
compute = "20ms"
bytes = "200kB"
rate = "100mbit"
alone = "first"
system = ["reno", "mltcp_reno"]
on = "uml"
"""
SEEDS = 1
SEVERAL = 5  # 12 runs: a second of them is not all
MANY = 29  # seeds, and with jobs alone 60 runs
CLOSES_S = 60.0  # Dask gives workers 5 to 10


def count(seeds: int) -> int:
    """Runs: of two systems, and of a job of each alone."""
    return 2 * seeds + 2


def sweep(folder: Path, *flags: str, out: str = "results", seeds: int = SEEDS) -> list[str]:
    (folder / "tiny.toml").write_text(CAMPAIGN + f"seeds = {seeds}\n")
    return [
        *INTERRUPTIBLE, sys.executable, "-m", "testbed", "sweep", str(folder / "tiny.toml"), "--out", str(folder / out), "--quiet", *flags,
    ]  # fmt: skip


def tables(out: Path) -> dict[str, bytes]:
    """Every measured table below ``out``, by its place."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.csv")) if path.name in TABLES}


def done(folder: Path, *flags: str, out: str, seeds: int = SEEDS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        sweep(folder, *flags, out=out, seeds=seeds), cwd=ROOT, capture_output=True, text=True, check=False
    )


@dataclass
class Cluster:
    """A scheduler on loopback, and workers of it, as a user starts them; workers of a checkout, behind a command."""

    port: int
    protocol: str = "tcp"
    daemon: str = "False"
    checkout: Path = ROOT
    before: Sequence[str] = ()
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.protocol}://127.0.0.1:{self.port}"

    def listens(self) -> bool:
        with socket.socket() as asks:
            return asks.connect_ex(("127.0.0.1", self.port)) == 0

    def scheduler(self) -> subprocess.Popen[bytes]:
        return self._started(ROOT, "scheduler", "--host", f"{self.protocol}://127.0.0.1", "--port", str(self.port))

    def worker(self) -> subprocess.Popen[bytes]:
        alone = ["--nthreads", "1", "--memory-limit", "0", "--host", f"{self.protocol}://127.0.0.1"]
        return self._started(self.checkout, "worker", self.address, *alone, before=self.before)

    def _started(self, folder: Path, *words: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        environment = os.environ | {"DASK_DISTRIBUTED__WORKER__DAEMON": self.daemon, "PYTHONPATH": str(folder)}
        command = [*before, sys.executable, "-m", "dask", *words, "--no-dashboard"]
        said = subprocess.DEVNULL
        self.processes.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said))
        return self.processes[-1]


@contextmanager
def cluster(workers: int = 2, **how: Any) -> Iterator[Cluster]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        made = Cluster(free.getsockname()[1], **how)
    first = made.scheduler()
    try:
        processes.until(made.listens, first.poll)  # on a busy machine it takes a while
        for _ in range(workers):
            made.worker()
        yield made
    finally:
        for process in reversed(
            made.processes
        ):  # a worker that is starting waits for its scheduler before it ends, if need be for ever
            process.terminate()
            try:
                process.wait(CLOSES_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.mark.parametrize("seeds", runs.some([SEEDS, MANY], SEEDS))
def test_a_campaign_is_the_same_by_every_executor(tmp_path: Path, seeds: int) -> None:
    half = count(seeds) // 2
    here = done(tmp_path, "-j", "1", out="local", seeds=seeds)
    assert here.returncode == 0, here.stderr
    by_dask = done(tmp_path, "--executor", "dask", "-j", "2", "--verify-sample", "50%", out="dask", seeds=seeds)
    assert by_dask.returncode == 0, by_dask.stderr
    repeated = f"{half} of {2 * half} runs, on any free worker: {half} of them byte-identical"
    assert f"Repeated {repeated}." in " ".join(by_dask.stdout.split())
    kept = Sample(2 * half, half, ())
    assert read(tmp_path / "dask") == kept and str(kept) == repeated
    slurm = done(tmp_path, "--executor", "slurm:local", "-j", "2", out="slurm", seeds=seeds)
    assert slurm.returncode == 0, slurm.stderr
    expected = tables(tmp_path / "local")
    assert len([name for name in expected if name.endswith("iterations.csv")]) == count(seeds)
    assert tables(tmp_path / "dask") == tables(tmp_path / "slurm") == expected
    assert not (tmp_path / "slurm/.slurm").exists()
    summaries = [json.loads((tmp_path / out / "tiny/summary.json").read_text()) for out in ("local", "dask", "slurm")]
    assert summaries[0] == summaries[1] == summaries[2]


@pytest.mark.slow
def test_a_cluster_loses_workers_and_the_driver_and_nothing_else(tmp_path: Path) -> None:
    """A worker killed, the driver killed and started again, then the scheduler: every run is there, whole, once."""
    with cluster() as there:
        scheduler, first, _second = there.processes
        flags = ("--executor", f"dask:{there.address}", "-j", "2")
        driver = subprocess.Popen(
            sweep(tmp_path, *flags, seeds=SEVERAL), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        results = tmp_path / "results"
        processes.until(lambda: stored(results), driver.poll)
        first.send_signal(signal.SIGKILL)
        time.sleep(1)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        before = stored(results)
        assert before < count(SEVERAL)
        again = subprocess.Popen(sweep(tmp_path, *flags, seeds=SEVERAL), cwd=ROOT, stderr=subprocess.PIPE, text=True)
        processes.until(lambda: stored(results) > before, again.poll)
        scheduler.send_signal(signal.SIGKILL)
        scheduler.wait()
        there.scheduler()
        there.worker()  # those of the old one go with it
        _, errors = again.communicate(timeout=processes.HANG_S)
        assert again.returncode == 0, errors
    assert_whole(results, SEVERAL)


def stored(results: Path) -> int:
    """How many runs are; by a walk that does not mind what vanishes meanwhile."""
    return sum("manifest.json" in files for _, _, files in os.walk(results))


def assert_whole(results: Path, seeds: int) -> None:
    """Every run is there, with all of its tables, and nothing besides."""
    manifests = list((results / "tiny").rglob("manifest.json"))
    assert len(manifests) == count(seeds)
    for manifest in manifests:
        check(load_run(manifest.parent))
    assert not [path for path in results.rglob("*") if path.name.startswith(".")]


def await_more(results: Path, more: int, driver: subprocess.Popen[str]) -> None:
    """Until so many runs have been stored besides those there are."""
    wanted = stored(results) + more
    processes.until(lambda: stored(results) >= wanted, driver.poll)


@pytest.mark.long
def test_sixty_runs_survive_ten_killed_workers_a_scheduler_and_the_driver(tmp_path: Path) -> None:
    """At random moments; afterwards the tables are those of a campaign that nobody disturbed."""
    draw = random.Random(21)
    alone = done(tmp_path, "-j", "2", out="undisturbed", seeds=MANY)
    assert alone.returncode == 0, alone.stderr
    results = tmp_path / "results"
    with cluster() as there:
        scheduler, *workers = there.processes
        command = sweep(tmp_path, "--executor", f"dask:{there.address}", "-j", "2", seeds=MANY)
        driver = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        try:
            for kill in range(12):
                await_more(results, draw.randrange(1, 5), driver)
                time.sleep(draw.random() * 2)
                if kill == 4:
                    driver.kill()
                    driver.communicate()
                    driver = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
                elif kill == 8:  # its workers go with it
                    scheduler.kill()
                    scheduler.wait()
                    there.scheduler()
                    workers = [there.worker(), there.worker()]
                else:
                    workers.pop(draw.randrange(len(workers))).kill()
                    workers.append(there.worker())
            _, errors = driver.communicate(timeout=processes.HANG_S)
            assert driver.returncode == 0, errors
        finally:
            driver.kill()
    assert_whole(tmp_path / "results", MANY)
    assert tables(tmp_path / "results") == tables(tmp_path / "undisturbed")


@pytest.mark.slow
def test_a_cluster_may_speak_tls_as_dask_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Security.temporary()  # type: ignore[no-untyped-call]
    for name in (
        "ca_file",
        "scheduler_cert",
        "scheduler_key",
        "worker_cert",
        "worker_key",
        "client_cert",
        "client_key",
    ):
        (tmp_path / name).write_text(getattr(drawn, f"tls_{name}"))
        setting = name if name == "ca_file" else name.replace("_", "__")
        monkeypatch.setenv(f"DASK_DISTRIBUTED__COMM__TLS__{setting.upper()}", str(tmp_path / name))
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION", "True")
    with cluster(workers=1, protocol="tls") as there:
        found = done(tmp_path, "--executor", f"dask:{there.address}", out="results")
        assert found.returncode == 0, found.stderr
        plain = done(tmp_path, "--executor", f"dask:{there.address.replace('tls', 'tcp')}", out="plain")
        assert plain.returncode != 0 and "encryption required" in " ".join(plain.stderr.split()), plain.stderr
    assert_whole(tmp_path / "results", SEEDS)


ADAPTIVE = """
import sys
import time

import distributed

if __name__ == "__main__":
    made = distributed.LocalCluster(
        n_workers=0, threads_per_worker=1, host="127.0.0.1", scheduler_port=int(sys.argv[1]), dashboard_address=None, memory_limit=0,
    )
    made.adapt(minimum=0, maximum=2, interval="200ms")
    most = 0
    while most == 0 or made.workers:
        most = max(most, len(made.workers))
        time.sleep(0.2)
    print(most, flush=True)
"""


@pytest.mark.slow
def test_an_adaptive_cluster_gets_workers_for_a_campaign_and_loses_them(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "adaptive.py").write_text(ADAPTIVE)
    environment = os.environ | {"DASK_DISTRIBUTED__WORKER__DAEMON": "False", "PYTHONPATH": str(ROOT)}
    command = [*INTERRUPTIBLE, sys.executable, str(tmp_path / "adaptive.py"), str(port)]
    there = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        processes.until(Cluster(port).listens, there.poll)
        found = done(tmp_path, "--executor", f"dask:tcp://127.0.0.1:{port}", "-j", "2", out="results")
        assert found.returncode == 0, found.stderr
        assert int(there.communicate(timeout=processes.HANG_S)[0]) in (1, 2)  # and none is left
    finally:
        there.terminate()
        there.wait()
    assert_whole(tmp_path / "results", SEEDS)


@pytest.mark.parametrize("executor", ["local", "dask", "slurm:local"])
def test_a_campaign_is_private_and_leaves_nothing_when_it_is_killed(tmp_path: Path, executor: str) -> None:
    """No port, no named semaphore, no folder that others can enter; after SIGKILL of the whole group, no process and no file."""
    aside, results = tmp_path / "tmp", tmp_path / "results"
    aside.mkdir()
    before = set(processes.below())
    command = sweep(tmp_path, "--executor", executor, "-j", "2", "--set", "iterations=2000", seeds=2)
    driver = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"TMPDIR": str(aside)},
    )  # fmt: skip
    assert driver.stderr is not None

    def ours() -> set[int]:
        return set(processes.below()) - before

    with driver.stderr as errors:
        processes.until(lambda: any("uml_dir" in "".join(words) for words in processes.below().values()), driver.poll)
        assert not processes.listening(ours())
        assert not processes.named_semaphores(ours())
        for folder in [*aside.iterdir(), *results.glob(".slurm")]:
            assert folder.stat().st_mode & 0o077 == 0
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        processes.until(lambda: not ours(), lambda: {pid: processes.below().get(pid) for pid in ours()})
        assert "Traceback" not in errors.read()
    assert not list(aside.iterdir())
    assert not [
        path for path in results.rglob("*") if path.name.startswith(".") and not path.name.startswith(locks.FILE)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "dask", "slurm:local"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_group_ends_a_campaign_without_a_traceback(
    tmp_path: Path, executor: str, number: signal.Signals
) -> None:
    command = sweep(tmp_path, "--executor", executor, "-j", "2", "--set", "iterations=2000", seeds=2)
    before = set(processes.below())
    for delay_s in (1.0, 4.0):  # while its processes start, and while runs go on
        driver = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        time.sleep(delay_s)
        os.killpg(driver.pid, number)
        _, errors = driver.communicate(timeout=processes.HANG_S)
        assert driver.returncode == EXIT_INTERRUPTED, errors
        assert "Traceback" not in errors
        processes.until(lambda: set(processes.below()) <= before, processes.below)
    assert not list((tmp_path / "results").rglob(".slurm"))


@pytest.mark.slow
@pytest.mark.parametrize("ours", [True, False], ids=["ours", "theirs"])
def test_ctrl_c_leaves_nothing_running_on_any_worker(tmp_path: Path, ours: bool) -> None:
    """Neither a run nor what it is made of; a cluster that was there before goes on, ready for the next campaign."""
    long = ("--set", "iterations=2000")
    with contextlib.ExitStack() as stack:
        there = None if ours else stack.enter_context(cluster(workers=1))
        before = set(processes.below())
        executor = "dask" if there is None else f"dask:{there.address}"
        command = sweep(tmp_path, "--executor", executor, "-j", "1", *long)
        driver = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

        def kernels() -> list[int]:
            return [pid for pid, words in processes.below().items() if any("uml_dir" in word for word in words)]

        processes.until(kernels, driver.poll)
        driver.send_signal(signal.SIGINT)
        _, errors = driver.communicate(timeout=processes.HANG_S)
        assert driver.returncode == EXIT_INTERRUPTED and "interrupted" in errors
        processes.until(lambda: not kernels(), processes.below)
        if there is not None:
            again = done(tmp_path, "--executor", executor, out="again")
            assert again.returncode == 0, again.stderr
        else:
            processes.until(lambda: set(processes.below()) <= before, processes.below)
    assert not list((tmp_path / "results").rglob("manifest.json"))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--executor", "spark"), "Give local, dask[:ADDRESS] or slurm[:PARTITION]"),
        (("--executor", "dask:localhost"), "Write dask:tcp://HOST:PORT"),
        (("--executor", "dask", "--verify-sample", "2"), "not between 0 and 100 %"),
    ],
)
def test_a_wrong_executor_is_one_paragraph(tmp_path: Path, flags: tuple[str, ...], says: str) -> None:
    found = done(tmp_path, *flags, out="none")
    assert found.returncode == 2 and says in " ".join(found.stderr.split())


def test_a_scheduler_that_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dask, "CONNECT_S", 1)
    command = sweep(tmp_path, "--executor", "dask:tcp://127.0.0.1:9", out="none")
    assert main(command[command.index("sweep") :]) == EXIT_MACHINE
    assert "no Dask scheduler answers" in " ".join(capsys.readouterr().err.split())


def test_workers_that_may_start_no_processes_are_said(tmp_path: Path) -> None:
    with cluster(daemon="True") as there:
        found = done(tmp_path, "--executor", f"dask:{there.address}", out="none")
    assert found.returncode == 3 and "DASK_DISTRIBUTED__WORKER__DAEMON" in found.stderr


def test_workers_of_another_source_are_refused_with_both(tmp_path: Path) -> None:
    theirs = runs.copy_checkout(tmp_path / "theirs")
    with (theirs / "testbed/replay/worker.py").open("a") as file:
        file.write("# another\n")
    with cluster(workers=1, checkout=theirs) as there:
        found = done(tmp_path, "--executor", f"dask:{there.address}", out="none")
    words = " ".join(found.stderr.split())
    assert found.returncode == EXIT_MACHINE and "Install the same on both" in words
    assert source_sha256()[:12] in words and words.count("of source") == 2
    assert not (tmp_path / "none").exists()


# For a worker alone: /tmp is a disk without room, on which its checkout and its home are still where they were.
FULL = """mount --rbind /tmp /mnt && mount -t tmpfs -o size=64k none /tmp || exit
for kept in "$PWD" "$HOME"; do
  case "$kept" in /tmp/*) mkdir -p "$kept" && mount --rbind "/mnt${kept#/tmp}" "$kept" || exit ;; esac
done
cd "$PWD" || exit
head -c 64k /dev/zero > /tmp/full
exec "$@\""""


@pytest.mark.slow
def test_a_worker_without_memory_loses_nothing(tmp_path: Path) -> None:
    """The run fails, saying so; a worker that has some carries it out."""
    little = ["prlimit", "--fsize=100000000", "--"]
    one = ("--set", "alone=none")
    with cluster(workers=1, before=little) as there:
        found = done(tmp_path, "--executor", f"dask:{there.address}", *one, out="out")
    words = " ".join(found.stderr.split())
    assert found.returncode != 0 and "memory" in words, found.stderr
    assert list((tmp_path / "out").rglob("*.csv")) == []
    with cluster(workers=1) as there:
        again = done(tmp_path, "--executor", f"dask:{there.address}", *one, out="out")
        assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_a_worker_whose_disk_is_full_loses_nothing(tmp_path: Path) -> None:
    """The run fails with that reason; there is no half of it, and a worker with room carries it out."""
    full = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", FULL, "sh"]
    if subprocess.run([*full, "true"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("this machine mounts nothing for who is not root")
    one = ("--set", "alone=none")
    with cluster(workers=1, before=full) as there:
        found = done(tmp_path, "--executor", f"dask:{there.address}", *one, out="out")
    assert found.returncode != 0 and "No space left on device" in " ".join(found.stderr.split()), found.stderr
    assert list((tmp_path / "out").rglob("*.csv")) == []
    with cluster(workers=1) as there:
        again = done(tmp_path, "--executor", f"dask:{there.address}", *one, out="out")
        assert again.returncode == 0, again.stderr
