"""Adding a congestion control is its C and one file of `congestion`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import congestion
from testbed.congestion import catalogue
from testbed.core.errors import RequestError
from testbed.spec import systems

TOY = """
from testbed.congestion.family import Family, Parameter
from testbed.core.runs.plan import Traits

FAMILIES = (
    Family("toy", "treatment", "reno", Traits(needs_marks=True), (Parameter("step", "step", "of growth", int, 1, 9, "2"),)),
)
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.setattr(congestion, "__path__", [*congestion.__path__, str(tmp_path)])
    catalogue.families.cache_clear()
    yield
    catalogue.families.cache_clear()


@pytest.mark.usefixtures("toy")
def test_a_family_is_one_file() -> None:
    control = catalogue.parse("toy:step=3")
    assert (control.role, control.base, control.traits.needs_marks) == ("treatment", "reno", True)
    assert catalogue.effective(control) == {"step": 3} and catalogue.effective(catalogue.parse("toy")) == {"step": 2}
    with pytest.raises(RequestError, match="step in 'toy:step=10'"):
        catalogue.parse("toy:step=10")


@pytest.mark.usefixtures("toy")
def test_roles_follow_from_the_file_and_may_be_said() -> None:
    roles = {label: systems.parse(label).role for label in ("reno", "toy", "reno+toy", "toy:role=baseline", "cassini")}
    assert list(roles.values()) == ["baseline", "treatment", "treatment", "baseline", "reference"]
    assert systems.parse("toy:step=3,role=reference").congestion[0].constants == {"step": 3}
    with pytest.raises(RequestError, match="baseline, treatment, reference"):
        systems.parse("toy:role=boss")


def test_every_module_has_its_family_and_every_base_exists() -> None:
    known = catalogue.families()
    assert set(catalogue.names()) <= known.keys()
    assert all(family.base in known for family in known.values() if family.base)


def test_ones_own_gets_what_it_declares_and_nothing_else(tmp_path: Path) -> None:
    """Whatever its name has in it."""
    file = tmp_path / "tcp_mydcqcn.c"
    file.write_text("/* nothing */\n")
    silent = catalogue.parse(str(file))
    assert (silent.role, silent.base) == ("treatment", None) and silent.traits == type(silent.traits)()
    file.write_text("/* testbed: base=dctcp needs_marks paced */\n")
    told = catalogue.parse(str(file))
    assert told.base == "dctcp" and told.traits.needs_marks and told.traits.paced and not told.traits.frame_by_frame
    file.write_text("/* testbed: base=reno fast */\n")
    with pytest.raises(RequestError, match=r"'fast' is no trait\. Write some of needs_marks"):
        catalogue.parse(str(file))
