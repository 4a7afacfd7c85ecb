"""Whose lines a run reads next, among many processes."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.linux.participants.child import SELECTABLE, readable


class End:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def fileno(self) -> int:
        return self.descriptor


@contextmanager
def pipe(least: int) -> Iterator[tuple[End, int]]:
    """A pipe: its end for reading, whose descriptor is ``least`` or the next free one, and the other."""
    end, write = os.pipe()
    read = fcntl.fcntl(end, fcntl.F_DUPFD, least)
    try:
        yield End(read), write
    finally:
        for descriptor in (end, read, write):
            os.close(descriptor)


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * SELECTABLE:
        pytest.skip("this process may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * SELECTABLE, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("least", [0, SELECTABLE])
@pytest.mark.usefixtures("many_files")
def test_those_with_lines_are_found_in_order(least: int) -> None:
    """64 jobs have 128 workers, and more descriptors than select(2) accepts."""
    with pipe(0) as (first, to_first), pipe(least) as (second, to_second), pipe(0) as (third, _):
        assert readable([first, second, third], 0) == []
        os.write(to_second, b"{}\n")
        assert readable([first, second, third], 1) == [second]
        os.write(to_first, b"{}\n")
        assert readable([second, third, first], 1) == [second, first]
