"""``[[system]]``: a system as a table of an experiment file, converted to a `SystemText`.

::

    [[system]]
    congestion = "reno"
    transport = "ltp"
    transport_options = {fraction = 0.8}
    label = "LTP"

equals ``--system ltp:fraction=0.8,label=LTP``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from testbed import transports
from testbed.core import builtin_transport, system_text
from testbed.core.errors import RequestError
from testbed.core.system_text import Part, SystemText
from testbed.core.text import quoted
from testbed.spec.systems import PLAIN

Option = str | bool | int | float


class SystemTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One or several alternating congestion controls, a transport, or a flow scheduler; with the options of each."""

    congestion: str | tuple[str, ...] | None = None
    congestion_options: dict[str, Option] = {}
    transport: str = builtin_transport.TCP
    transport_options: dict[str, Option] = {}
    flow_scheduler: str | None = None
    flow_scheduler_options: dict[str, Option] = {}
    label: str | None = None
    role: str | None = None
    preset: str | None = None

    def typed(self) -> SystemText:
        """Return the system as text of ``--system``. Raises `RequestError` for parts that cannot be combined."""
        return SystemText(self._parts(), self.label, self.role)

    def _parts(self) -> tuple[Part, ...]:
        controls = (self.congestion,) if isinstance(self.congestion, str) else self.congestion or ()
        if self.flow_scheduler is not None:
            if controls or self.congestion_options or self.transport != builtin_transport.TCP or self.transport_options:
                raise RequestError("a flow scheduler decides for all jobs. Leave out congestion and transport.")
            return (_part(self.flow_scheduler, self.flow_scheduler_options),)
        if self.flow_scheduler_options:
            raise RequestError(
                'flow_scheduler_options: there is no flow_scheduler. Name one, as in flow_scheduler = "unfair".'
            )
        if builtin_transport.plain(self.transport):
            if not controls:
                raise RequestError(
                    'name a congestion control, a transport or a flow scheduler, as in congestion = "reno".'
                )
            preset = {} if self.preset is None else {"preset": self.preset}
            options = self.congestion_options | preset | self.transport_options
            return tuple(_part(one, options) for one in controls)
        if len(controls) > 1 or self.congestion_options or self.preset is not None:
            raise RequestError(
                f"congestion: {self.transport} takes one congestion control without options, for what it sends by TCP."
            )
        options = dict(self.transport_options)
        if controls and controls[0] != PLAIN:
            name = transports.parse(self.transport).name
            if "broadcast" not in {one.name for one in dataclasses.fields(transports.find(name).Options)}:
                raise RequestError(f"congestion: {quoted(self.transport)} sends nothing by TCP. Leave it out.")
            options.setdefault("broadcast", f"tcp:{controls[0]}")
        return (_part(self.transport, options),)


def texts(systems: Any) -> Any:
    """``system`` of an experiment with its tables as text; anything that is no list stays. Raises `RequestError`."""
    if not isinstance(systems, list | tuple):
        return systems
    return [_text(one, number) if isinstance(one, dict) else one for number, one in enumerate(systems)]


def _text(table: dict[str, Any], number: int) -> str:
    try:
        return str(msgspec.convert(table, SystemTable).typed())
    except (msgspec.ValidationError, RequestError) as error:
        raise RequestError(str(error), where=f"system[{number}]") from error


def _part(name: str, options: dict[str, Option]) -> Part:
    return system_text.part(name).having((key, _value(value)) for key, value in options.items())


def _value(value: Option) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
