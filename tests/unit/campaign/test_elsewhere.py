"""What a driver and a worker on another machine must agree in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed import __version__
from testbed.campaign.executors import kernels, remote_requirements
from testbed.campaign.executors.remote_requirements import Maker
from testbed.campaign.provenance import source_sha256
from testbed.core.errors import MachineError
from testbed.core.runs.manifest import UserModeLinux

KERNEL = UserModeLinux(
    version="6.12.0",
    source="a source",
    compiler="a compiler",
    config_sha256="0" * 64,
    image_sha256="0" * 64,
    modules="0" * 16,
)


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Maker:
    monkeypatch.setattr(remote_requirements, "missing", lambda: "")
    monkeypatch.setattr(kernels, "is_here", lambda _kernel: True)
    return Maker(__version__, source_sha256(), KERNEL, remote_requirements.versions())


def test_the_same_may_run(maker: Maker) -> None:
    remote_requirements.check(maker)


@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        ({"numpy": "0.1"}, ("numpy 0.1", "numpy ")),
        ({"Python": "2.7.18", "rich": "1"}, ("Python 2.7.18, rich 1", "Install the same on both")),
    ],
)
def test_other_versions_are_refused_with_both(maker: Maker, theirs: dict[str, str], says: tuple[str, ...]) -> None:
    with pytest.raises(MachineError) as refused:
        remote_requirements.check(replace(maker, versions=maker.versions | theirs))
    assert all(words in str(refused.value) for words in says)
    assert str(refused.value).count(next(iter(theirs))) == 2


def test_another_source_is_refused_with_both(maker: Maker) -> None:
    with pytest.raises(MachineError, match="of source 0123"):
        remote_requirements.check(replace(maker, source_sha256="0123" * 16))
