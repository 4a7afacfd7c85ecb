"""Slurm, by submitit: each run under virtual time is a job with one core (``--executor slurm``, ``slurm:PARTITION``).

``slurm:local`` starts the same jobs as processes of this machine, without Slurm. The folder ``.slurm`` below the
results, which all nodes must reach, holds tasks and their outcomes during the campaign. They are pickled Python
objects, whose loading executes code, so the folder must belong to this user only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.campaign.executors import kernels, remote_requirements
from testbed.campaign.executors.remote_requirements import Maker
from testbed.campaign.tasks import Failed, Outcome, Task, carry_out
from testbed.core.children import end_with, ends_with_parent
from testbed.core.errors import LostError, MachineError, TestbedError
from testbed.core.temp_dirs import removed_in_any_case
from testbed.spec import backend_names

LOCAL = "local"
LIMIT_MIN = 24 * 60
MEMORY_GB = 4
POLL_S = 0.5


class SlurmLane:
    """An executor of one run at a time, as a Slurm job."""

    def __init__(self, executor: Any, maker: Maker, kernel: Path) -> None:
        self.executor, self.maker, self.kernel = executor, maker, kernel
        self.waits = ThreadPoolExecutor(1, thread_name_prefix="slurm-lane")
        self.job: Any = None
        self.ended = False

    def backend_for(self, on: str) -> str | None:
        """Virtual time only: a node is shared."""
        return None if backend_names.in_real_time(on) else on

    def submit(self, task: Task) -> Future[Outcome]:
        return self.waits.submit(self._carried_out, replace(task, kernel=self.maker.kernel))

    def _carried_out(self, task: Task) -> Outcome:
        import submitit  # noqa: PLC0415

        self.job = self.executor.submit(_on_node, task, self.maker, self.kernel)
        while not self.job.done():
            if self.ended:
                self.job.cancel()
                raise LostError("the campaign was ended")
            time.sleep(POLL_S)
        try:
            outcome: Outcome = self.job.result()
        except (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError, OSError) as error:
            return Failed(TestbedError(f"job {self.job.job_id} ended without a result ({error})"))
        return outcome

    def end(self) -> None:
        """Close the lane; all its runs have ended."""
        self.ended = True
        with contextlib.suppress(Exception):
            if self.job is not None:
                self.job.cancel()
        self.waits.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def lanes(partition: str | None, parallel: int, out: Path) -> Iterator[list[SlurmLane]]:
    """``parallel`` jobs at a time; raises `MachineError` where there is no Slurm, or no submitit."""
    try:
        import submitit  # noqa: PLC0415
    except ImportError as error:
        raise MachineError(
            "--executor slurm needs submitit: `.venv/bin/pip install 'mltcp-testbed[slurm]'`."
        ) from error
    if partition != LOCAL and shutil.which("sbatch") is None:
        raise MachineError(
            "--executor slurm: there is no sbatch here; `slurm:local` starts the same jobs without Slurm."
        )
    folder = out.absolute() / ".slurm"
    with removed_in_any_case(folder):
        _make_private(folder)
        kernel = folder / "kernel.tar.xz"
        made: list[SlurmLane] = []
        try:
            kernel.write_bytes(kernels.packed())
            executor = submitit.AutoExecutor(folder, cluster=LOCAL if partition == LOCAL else "slurm")
            executor.update_parameters(timeout_min=LIMIT_MIN, cpus_per_task=1, mem_gb=MEMORY_GB, name="mltcp")
            if partition == LOCAL:
                _end_with_us(executor._executor)
            elif partition is not None:
                executor.update_parameters(slurm_partition=partition)
            made = [SlurmLane(executor, Maker.here(), kernel) for _ in range(parallel)]
            yield made
        finally:
            for lane in made:
                lane.end()
            shutil.rmtree(folder, ignore_errors=True)


def _make_private(folder: Path) -> None:
    """A new ``folder`` that no other user can enter; raises `MachineError` where it belongs to one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists() and not folder.is_symlink():  # of a campaign that was killed
        shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise MachineError(
            f"--executor slurm: {folder} is there already, and is not a folder of yours. Remove it, or name another --out."
        ) from None
    status = folder.lstat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise MachineError(
            f"--executor slurm: other users may write to {folder}, and could run code as you. Name an --out on a file system that "
            "keeps owners and permissions."
        )


def _end_with_us(executor: Any) -> None:
    """Have submitit's local jobs end with this process, and keep their words from its terminal."""
    from submitit.local.local import LocalJob  # noqa: PLC0415

    def submit(command: str) -> Any:
        environment = os.environ | {
            "SUBMITIT_LOCAL_NTASKS": "1", "SUBMITIT_LOCAL_COMMAND": command, "SUBMITIT_LOCAL_TIMEOUT_S": str(60 * LIMIT_MIN),
            "SUBMITIT_LOCAL_SIGNAL_DELAY_S": "30", "SUBMITIT_LOCAL_NODEID": "0", "SUBMITIT_LOCAL_JOB_NUM_NODES": "1",
            "SUBMITIT_STDERR_TO_STDOUT": "", "SUBMITIT_EXECUTOR": LOCAL, "SUBMITIT_LOCAL_WITH_SHELL": "",
        }  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "submitit.local._local", str(executor.folder)], env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=ends_with_parent(signal.SIGTERM),  # noqa: PLW1509
        )  # fmt: skip
        return LocalJob(folder=executor.folder, job_id=str(process.pid), process=process, tasks=[0])

    executor._submit_command = submit


def _end(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt("the job was ended")


def _on_node(task: Task, maker: Maker, kernel: Path) -> Outcome:
    """On a node: what came of the task. submitit ignores SIGTERM, by which Slurm and a driver that is gone end a job."""
    signal.signal(signal.SIGTERM, _end)
    end_with(signal.SIGTERM)
    try:
        if not remote_requirements.missing() and not kernels.is_here(maker.kernel):
            kernels.unpack(kernel.read_bytes())
        remote_requirements.check(maker)
    except TestbedError as error:
        return Failed(error)
    return carry_out(task)
