"""Tiers: ``tests/unit`` needs nothing, ``tests/uml`` the user-mode Linux kernel of `make kernel`,
``tests/netns`` root and this machine's kernel, ``tests/vagrant`` (only with ``-m vagrant``) what `make vm-tools` installs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: a worker a core already, and matrices are small

import pytest
from hypothesis import HealthCheck, settings

from testbed.backends import pace, uml
from testbed.core.errors import MachineError
from tests.support import processes

# A loaded machine makes no test fail: speed is measured in benchmarks/.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("steady"), max_examples=5000)
settings.load_profile("steady")
# Interpreted, so that lines are seen and nobody waits for a compiler; that compiled loops give the same bytes is a test of its own.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
# What tests take is no record of what runs of this user take.
pace.FILE = f"{tempfile.gettempdir()}/mltcp-tests-{os.getuid()}-{os.getpid()}-pace.json"

ROOT = Path(__file__).parent.parent
pytest_plugins = ["testbed.testing"]


def pytest_configure(config: pytest.Config) -> None:
    """libvirt waits until an orphan has ended and somebody has waited for it, which this process does only between tests."""
    if "vagrant" not in config.getoption("markexpr"):
        processes.adopt_orphans()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="tests marked slow, too, as in continuous integration")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    no_kernel = _no_kernel() if any("uml" in item.path.parts for item in items) else ""
    for item in items:
        if "uml" in item.path.parts:
            item.add_marker(pytest.mark.uml)
            if no_kernel:
                item.add_marker(pytest.mark.skip(reason=no_kernel))
        if "vagrant" in item.path.relative_to(ROOT).parts:
            item.add_marker(pytest.mark.vagrant)
            if "vagrant" not in config.getoption("markexpr"):
                item.add_marker(pytest.mark.skip(reason="builds and boots VMs, for half an hour: make test-vagrant"))
        if "netns" in item.path.parts:
            item.add_marker(pytest.mark.netns)
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root: run `make test`, which uses sudo"))
    asked = config.getoption("markexpr")
    left_out = {
        *(() if "long" in asked else ("long",)),
        *(() if "slow" in asked or "long" in asked or config.getoption("slow") else ("slow",)),  # a proof may be both
    }
    if left_out:
        later = [item for item in items if any(item.get_closest_marker(mark) for mark in left_out)]
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if item not in later]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    processes.bury_orphans()


def pytest_unconfigure() -> None:
    Path(pace.FILE).unlink(missing_ok=True)


def _no_kernel() -> str:
    """Why `--on uml` cannot run here; empty if it can."""
    try:
        uml.find()
    except MachineError as error:
        return str(error)
    return ""


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(autouse=True, scope="session")
def _no_width() -> None:
    """pytest-xdist gives its workers a width of 80 columns; messages are whole lines without one."""
    os.environ.pop("COLUMNS", None)
