"""The errors that the testbed raises. All are a `TestbedError`, whose ``exit_code`` is that of the command ``mltcp``.

::

    TestbedError            1  a run failed
    ├── LostError           1  the connection to another machine was lost
    ├── LoadError           1  results cannot be used
    ├── TransportError      1  a worker's peer is gone
    ├── RequestError        2  the request is wrong
    │   ├── UnitError, OptionError, TomlError, FileError
    │   ├── TraceError, JobError, TopologyError, ScheduleError
    │   ├── UnknownContentError, ContentError
    │   └── TooLargeError, VirtualTimeOnlyError
    └── MachineError        3  this machine cannot do it
        └── InUseError, UnreachableError
"""

from __future__ import annotations

from testbed.core.errors import (
    LostError,
    MachineError,
    RequestError,
    TestbedError,
    UnreachableError,
    VirtualTimeOnlyError,
)
from testbed.core.input_files import FileError
from testbed.core.locks import InUseError
from testbed.core.options import OptionError
from testbed.core.runs.load import LoadError
from testbed.core.toml import TomlError
from testbed.core.units import UnitError
from testbed.networks import TopologyError
from testbed.registry import ContentError, UnknownContentError
from testbed.schedulers.flow import ScheduleError
from testbed.spec.job import JobError
from testbed.spec.limits import TooLargeError
from testbed.traces.trace import TraceError
from testbed.transports import TransportError

__all__ = [
    "ContentError",
    "FileError",
    "InUseError",
    "JobError",
    "LoadError",
    "LostError",
    "MachineError",
    "OptionError",
    "RequestError",
    "ScheduleError",
    "TestbedError",
    "TomlError",
    "TooLargeError",
    "TopologyError",
    "TraceError",
    "TransportError",
    "UnitError",
    "UnknownContentError",
    "UnreachableError",
    "VirtualTimeOnlyError",
]
