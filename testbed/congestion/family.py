"""The properties of a congestion control: its base, its traits, its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from testbed.congestion.curves import ONE
from testbed.core import options
from testbed.core.runs.plan import Role, Traits
from testbed.core.text import shown
from testbed.core.units import Duration, Quantity


@dataclass(frozen=True)
class Parameter:
    """One parameter: its constant in the program (and name in the module), its range there, how it is written."""

    name: str
    constant: str
    meaning: str
    read: Callable[[str], int]
    lowest: int
    highest: int
    default: str
    alias: str = ""  # another name, which help leaves out

    @property
    def declared(self) -> options.Declared:
        """Return the parameter as an option behind the name of its congestion control."""
        return options.Declared(self.name, f"{self.meaning}; default {self.default}", self.value, self.alias)

    def value(self, text: str) -> int:
        """Return its constant for a text. Raises `ValueError`."""
        value = self.read(text)
        if not self.lowest <= value <= self.highest:
            written = getattr(self.read, "written", str)
            raise ValueError(f"{shown(text)} is not between {written(self.lowest)} and {written(self.highest)}")
        return value


@dataclass(frozen=True)
class Preset:
    """Parameters that belong together, as text; ``asks``: the parameter that the user must add."""

    values: Mapping[str, str]
    asks: str | None = None


def unscaled(_rate_bps: int) -> Mapping[str, int]:
    """Constants that hold at every rate."""
    return {}


@dataclass(frozen=True)
class Family:
    """A congestion control by name; ``base``: the one that it modifies."""

    name: str
    role: Role = "baseline"
    base: str | None = None
    traits: Traits = field(default_factory=Traits)
    parameters: tuple[Parameter, ...] = ()
    scaled_to: Callable[[int], Mapping[str, int]] = unscaled  # constants for a bottleneck of so many bit/s
    presets: Mapping[str, Preset] = field(default_factory=dict)
    title: str = ""  # its name in running text, if different


class Fraction:
    """Reads a number in units of 1/1024; `written` is the number for a value."""

    def __call__(self, text: str) -> int:
        return round(options.Number(-1e6, 1e6)(text) * ONE)

    def written(self, value: int) -> str:
        return f"{value / ONE:.3g}"


@dataclass(frozen=True)
class Multiple:
    """Reads how many times ``of`` a quantity is, and raises `ValueError` for a part of one; `written` is the quantity for a value."""

    of: Quantity

    def __call__(self, text: str) -> int:
        value = type(self.of).parse(text)
        if value % self.of:
            raise ValueError(f"{value.exact} is not a multiple of {self.of.exact}")
        return value // self.of

    def written(self, value: int) -> str:
        return type(self.of)(value * self.of).exact


fraction, microseconds = Fraction(), Multiple(Duration(1000))
