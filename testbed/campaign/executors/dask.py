"""Dask: runs under virtual time on the workers of a cluster (``--executor dask``, ``dask:tcp://HOST:8786``).

It is plain Dask: workers are started as usual (``dask worker``, ``dask-ssh``, dask-jobqueue), with this testbed installed
and one run at a time. A worker runs one task in a child process, which ends with the worker. The driver waits, stores the
results, and submits lost tasks again. No decision depends on the state of the Dask cluster.

A local cluster is scheduler and workers in threads of this process. It opens no port, so no other user of the machine can
submit runs to it.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dask
import distributed
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from testbed.campaign import executors
from testbed.campaign.executors import kernels, remote_requirements
from testbed.campaign.executors.local import Lane
from testbed.campaign.executors.remote_requirements import Maker
from testbed.campaign.tasks import Failed, Outcome, Task
from testbed.core import temp_dirs
from testbed.core.errors import LostError, MachineError, TestbedError, UnreachableError
from testbed.spec import backend_names

CONNECT_S, RECONNECT_S = 20.0, 300.0
LOOK_S, UNHEARD_S = 0.5, 5.0
ATTEMPTS = 5  # number of times that a run is submitted, if its worker or scheduler is lost
KILLED = 10  # workers that may die during a run before it is given up
RESOURCE = "uml"  # a worker has one: a run takes a complete core
SETTINGS = {
    "distributed.worker.daemon": False,  # its runs are processes
    "distributed.scheduler.allowed-failures": KILLED,
    "distributed.scheduler.worker-ttl": None,  # a busy machine is slow to answer, and not dead
    "distributed.worker.memory.terminate": False,
    "distributed.admin.tick.limit": "1h",
    # Runs keep every core busy. The following monitoring is not used, and would take time of the runs.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.scheduler.active-memory-manager.start": False,
}
GONE = (distributed.CancelledError, CommClosedError, OSError, NotYet, distributed.TimeoutError)


@dataclass
class Cluster:
    """A connection to a scheduler, made again when it is lost; and the workers there that can execute runs."""

    maker: Maker
    archive: bytes
    address: str | None  # None: a cluster of our own
    workers: int
    scratch: Path  # of this campaign
    lock: threading.Lock = field(default_factory=threading.Lock)
    client: distributed.Client | None = None
    own: distributed.SpecCluster | None = None
    ran_on: dict[str, str] = field(default_factory=dict)  # the worker by a run's name
    prepared: str = ""  # the id of the scheduler that has the plug-in for its workers
    ended: bool = False

    def connected(self, patience_s: float = RECONNECT_S) -> distributed.Client:
        """A client whose scheduler answers; raises `UnreachableError`."""
        with self.lock:
            if self.ended:
                raise UnreachableError("the campaign was ended")
            end = time.monotonic() + patience_s
            while True:
                try:
                    if self.client is None or self.client.status != "running":
                        self.client = self._connect()
                    self._prepare(self.client)
                    return self.client
                except OSError as error:
                    if time.monotonic() > end:
                        raise UnreachableError(
                            f"no Dask scheduler answers at {self.address or 'this machine'} ({error}): start one (`dask scheduler`), and "
                            "workers for it (`dask worker ADDRESS --nthreads 1`)."
                        ) from error
                    time.sleep(1)

    def _connect(self) -> distributed.Client:
        if self.address is None and self.own is None:
            for handler in logging.getLogger("distributed").handlers:
                handler.setLevel(
                    logging.CRITICAL
                )  # also after the cluster's end, when Dask's `silence_logs` no longer holds
            options = {"nthreads": 1, "memory_limit": 0, "local_directory": str(self.scratch), "dashboard": False}
            self.own = distributed.SpecCluster(
                {number: {"cls": _Worker, "options": options} for number in range(self.workers)},
                {"cls": _Scheduler, "options": {"protocol": "inproc://", "dashboard": False}},
            )
        return distributed.Client(self.address or self.own, timeout=CONNECT_S, set_as_default=False)

    def _prepare(self, client: distributed.Client) -> None:
        """Send the settings again after a restart of the scheduler, to which a client reconnects by itself."""
        scheduler = str(client.scheduler_info(n_workers=0)["id"])
        if scheduler != self.prepared:
            client.run_on_scheduler(_forgive)
            client.register_plugin(_Prepared(self.maker, self.archive), name="mltcp")
            self.prepared = scheduler

    def close(self) -> None:
        """Close the cluster; all tasks of this campaign have ended."""
        self.ended = True
        with contextlib.suppress(Exception):
            if self.client is not None:
                self.client.close(timeout=5)
        if self.own is not None:
            with contextlib.suppress(Exception):
                self.own.close(timeout=10)

    def check(self, say: Callable[[str], None]) -> None:
        """Call ``say`` with each worker that is left out, and the reason.

        Raises `MachineError` if no worker can execute runs.
        """
        client = self.connected(CONNECT_S)
        with contextlib.suppress(NotYet, distributed.TimeoutError):  # an adaptive cluster waits for work
            client.wait_for_workers(1, timeout=CONNECT_S)
        answers = client.run(_lacks, self.maker, on_error="return")
        reasons = {
            worker: f"{type(found).__name__}: {found}" if isinstance(found, BaseException) else found
            for worker, found in answers.items()
            if found
        }
        words = "; ".join(f"{worker}: {reason}" for worker, reason in reasons.items())
        if reasons and len(reasons) == len(answers):
            raise MachineError(f"no Dask worker can run these experiments: {words}")
        if reasons:
            say(f"left out: {words}")


class _Scheduler(distributed.Scheduler):
    """Dask's, without its HTTP server."""

    def start_http_server(self, *_arguments: Any, **_options: Any) -> None:
        """Do nothing: Dask opens a port even if no dashboard is requested."""


class _Worker(distributed.Worker):
    """Dask's, without its HTTP server."""

    def start_http_server(self, *_arguments: Any, **_options: Any) -> None:
        """As `_Scheduler`."""


def _forgive(dask_scheduler: Any) -> None:
    """On any scheduler: a run survives the loss of as many workers as on a local cluster."""
    dask_scheduler.allowed_failures = max(dask_scheduler.allowed_failures, KILLED)


class _Prepared(distributed.WorkerPlugin):
    """What every worker, present or to come, is before it gets a run: with the kernel, and with one run at a time."""

    def __init__(self, maker: Maker, archive: bytes) -> None:
        self.maker, self.archive = maker, archive

    async def setup(self, worker: distributed.Worker) -> None:
        if not remote_requirements.missing() and not kernels.is_here(self.maker.kernel):
            # If that fails, for example on a full disk, this worker is left out with the reason, and the others continue.
            with contextlib.suppress(TestbedError):
                kernels.unpack(self.archive)
        able = not _lacks(self.maker)
        await worker.set_resources(**{RESOURCE: 1 if able else 0})


def _lacks(maker: Maker) -> str:
    """On a worker: why it cannot execute runs; empty if it can."""
    if multiprocessing.current_process().daemon:
        return "it may start no processes: start it with DASK_DISTRIBUTED__WORKER__DAEMON=False, or --no-nanny"
    try:
        remote_requirements.check(maker)
    except TestbedError as error:
        return str(error)
    return ""


class _UnheardError(Exception):
    """No worker has the task: Dask looks for one when a worker joins, but not when that worker later reports its resources."""


class DaskLane:
    """An executor of one run at a time, on a worker chosen by the Dask scheduler."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.waits = ThreadPoolExecutor(1, thread_name_prefix="dask-lane")

    def backend_for(self, on: str) -> str | None:
        """Virtual time only: what shares a machine with others would disturb them on a real clock."""
        return None if backend_names.in_real_time(on) else on

    def submit(self, task: Task) -> Future[Outcome]:
        return self.waits.submit(self._carried_out, replace(task, kernel=self.cluster.maker.kernel))

    def _carried_out(self, task: Task) -> Outcome:
        name = f"{task.plan.experiment}/{task.plan.folder}"
        lost, attempt = "", 0
        while attempt < ATTEMPTS:
            client = self.cluster.connected()
            try:
                return self._asked(client, task, name, attempt)
            except KilledWorker:
                return executors.killed()
            except _UnheardError:
                continue
            except GONE as error:
                lost = f"{type(error).__name__}: {error}"
                attempt += 1
                time.sleep(attempt)
        raise LostError(f"the Dask cluster lost it {ATTEMPTS} times ({lost})")

    def _asked(self, client: distributed.Client, task: Task, name: str, attempt: int) -> Outcome:
        # A run repeated for comparison goes to another worker, if there is one.
        before = self.cluster.ran_on.get(name)
        others = [one for one in client.scheduler_info(n_workers=-1)["workers"] if one != before] if before else []
        key = f"{name}#{attempt}#{time.time_ns()}"
        heard_s = time.monotonic()
        future = client.submit(
            _on_worker, task, self.cluster.maker, key=key, pure=False, resources={RESOURCE: 1},
            workers=others or None, retries=KILLED,
        )  # fmt: skip
        try:
            while True:
                with contextlib.suppress(NotYet, distributed.TimeoutError):
                    worker, outcome = future.result(timeout=LOOK_S)  # `_on_worker`'s
                    break
                if self.cluster.ended:
                    future.cancel()
                    raise LostError("the campaign was ended")
                if client.status != "running":
                    raise CommClosedError("the scheduler is gone")
                if time.monotonic() > heard_s + UNHEARD_S:
                    if not any(key in keys for keys in client.processing().values()):
                        raise _UnheardError
                    heard_s = time.monotonic()
        finally:
            future.release()
        self.cluster.ran_on.setdefault(name, worker)
        return outcome


@contextlib.contextmanager
def lanes(address: str | None, parallel: int, say: Callable[[str], None]) -> Iterator[list[DaskLane]]:
    """Open ``parallel`` lanes to the cluster at ``address``; None: to a new local cluster with as many workers.

    ``say`` is called with a description of the workers that are left out.
    """
    with temp_dirs.scratch() as scratch, dask.config.set(SETTINGS | {"temporary-directory": str(scratch)}):
        cluster = Cluster(Maker.here(), kernels.packed(), address, parallel, scratch)
        made = [DaskLane(cluster) for _ in range(parallel)]
        try:
            cluster.check(say)
            yield made
        finally:
            cluster.close()
            for lane in made:
                lane.waits.shutdown(wait=False, cancel_futures=True)


class _Own:
    """A worker's state for runs: one child process, for one run at a time."""

    def __init__(self, worker: distributed.Worker) -> None:
        self.one_at_a_time, self.lane = threading.Lock(), Lane(None)
        weakref.finalize(worker, self.lane.terminate)


_making = threading.Lock()
_owned: weakref.WeakKeyDictionary[distributed.Worker, _Own] = weakref.WeakKeyDictionary()


def _own(worker: distributed.Worker) -> _Own:
    with _making:
        if worker not in _owned:
            _owned[worker] = _Own(worker)
        return _owned[worker]


def _on_worker(task: Task, maker: Maker) -> tuple[str, Outcome]:
    """On a worker: its identity, and the outcome of the task. The child process is ended if the result is no longer wanted."""
    if lacking := _lacks(maker):
        return "", Failed(MachineError(lacking))
    worker: Any = distributed.get_worker()
    key = worker.get_current_task()
    own = _own(worker)
    with own.one_at_a_time:
        running = own.lane.submit(task)
        while True:
            try:
                return worker.address, running.result(timeout=LOOK_S)
            except NotYet:
                wanted = worker.state.tasks.get(key)
                if wanted is None or wanted.state in ("cancelled", "released"):
                    own.lane.end()
                    raise LostError("the run was cancelled") from None
            except BrokenProcessPool:
                return worker.address, executors.killed()
