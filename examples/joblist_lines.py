"""A job-list format: one job per line, as "ARRIVAL_S GPUS DURATION_S".

mltcp schedule jobs.txt --format ./joblist_lines.py --servers 4 --gpus 8 --scheduler fifo
"""

from pathlib import Path

from testbed.traces.job_lists import Logged, logged
from testbed.traces.rows import Omissions, RowError

TITLE = "lines of ARRIVAL_S GPUS DURATION_S"


def recognises(head: str, path: Path) -> bool:
    return path.suffix == ".lines"


def read(text: str, path: Path, omitted: Omissions) -> list[Logged]:
    lines = ((f"line {number}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip())
    return logged(lines, _job, omitted)


def _job(line: str) -> Logged:
    try:
        arrival, gpus, duration = line.split()
        return Logged(float(arrival), int(gpus), float(duration))
    except ValueError as error:
        raise RowError("not ARRIVAL_S GPUS DURATION_S", line) from error
