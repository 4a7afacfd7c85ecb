"""An importer: a text file with one all-reduce per line, as "MILLISECONDS BYTES".

mltcp import bursts.txt --format ./importer_bursts.py -o bursts.json --native-rate 10gbit --iteration 200ms
"""

from pathlib import Path

from testbed.traces.importing import Profile, Request
from testbed.traces.steps import Exchange, Step
from testbed.traces.trace import TraceError

TITLE = "bursts: MILLISECONDS BYTES in each line"
USES = frozenset({"iteration"})


def recognises(head: bytes, path: Path) -> bool:
    return path.suffix == ".bursts"


def read(path: Path, request: Request) -> Profile:
    if request.iteration is None:
        raise TraceError(f"{path}: the file does not say how long an iteration takes. Give --iteration 200ms.")
    rows = [line.split() for line in path.read_text().splitlines() if line.strip()]
    ready = [(float(time) / 1e3, int(size)) for time, size in rows]
    step = Step(int(request.iteration) / 1e9, tuple(Exchange("all_reduce", size, at, at) for at, size in ready))
    return Profile([step], measured_by=f"the file {path.name}")
