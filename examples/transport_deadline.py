"""A transport: LTP with a custom closing rule. A gradient ends at a fixed time after the first packet of its round.

mltcp run --system reno ./transport_deadline.py:after=80ms --topo star --jobs 1 --workers 3 --collective parameter_server --loss 1%
"""

from dataclasses import dataclass

from testbed.core.options import Time, option
from testbed.core.units import Duration
from testbed.transports import Close, Stage, ltp
from testbed.transports.ltp import DATAGRAMS, listen, lossy

__all__ = ["DATAGRAMS", "TITLE", "Options", "close", "listen", "lossy"]
TITLE = "Deadline"


@dataclass(frozen=True)
class Options(ltp.Options):
    after: Duration = option(Duration.parse("80ms"), "from a round's first packet to its end (default: 80ms)", Time())


def close(options: Options, stage: Stage) -> Close:
    if stage == "parameter":
        return Close()  # complete
    seconds = options.after / 1e9
    return Close(fraction=options.fraction, lt_s=seconds, deadline_s=seconds, group="round")
