"""One tree of errors: what a user can mend has one root, says where it happened, and decides the exit code."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

from testbed.core import errors
from testbed.core.errors import MachineError, RequestError, TestbedError, within, within_unless_named
from testbed.core.runs.load import LoadError
from testbed.core.units import Rate, UnitError
from testbed.linux.participants.timeline import explained
from testbed.linux.participants.workers import GoneError
from testbed.planning.plan import plans, resolve
from testbed.spec import read
from testbed.spec.job import JobError

ROOT = Path(__file__).parents[3]

# Roots of their own: the first of ours, and what is no message to anybody.
ROOTS = {"TestbedError", "CallerGoneError", "BuiltError", "LeftError"}


def test_every_error_grows_on_the_one_tree() -> None:
    foreign = {"Exception", "BaseException", "ValueError", "RuntimeError", "OSError", "KeyError", "TypeError"}
    found = {
        node.name
        for path in (ROOT / "testbed").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if node.bases and {ast.unparse(base) for base in node.bases} <= foreign
    }
    assert found == ROOTS


def test_layers_add_where_it_happened() -> None:
    with pytest.raises(UnitError) as caught, within("mine.toml"), within("job.0", "."), within("rate"):
        Rate.parse("fast")
    assert caught.value.where == "mine.toml: job.0.rate" and caught.value.what.startswith("'fast' is not a rate")
    assert str(caught.value) == f"{caught.value.where}: {caught.value.what}"
    assert caught.value.exit_code == errors.EXIT_REQUEST and caught.value.__cause__ is None


def test_a_source_is_named_once_and_only_of_a_wrong_request() -> None:
    for error, says in (
        (RequestError("rate: no"), "mine.toml: rate: no"),
        (RequestError("mine.toml: rate: no"), "mine.toml: rate: no"),
        (MachineError("no kernel"), "no kernel"),
    ):
        with pytest.raises(TestbedError) as caught, within_unless_named("mine.toml"):
            raise error
        assert caught.value is error and str(error) == says


def test_an_error_goes_to_another_process_and_back() -> None:
    for error in (
        LoadError("missing", "results"),
        JobError("is less than 2", where="job.0.workers"),
        RequestError("no"),
    ):
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error) and str(back) == str(error) and back.where == error.where


def test_what_a_job_says_of_itself_is_found_by_its_path() -> None:
    with pytest.raises(JobError) as caught:
        read(None, {"job": ["s2", "s2,workers=1"]})
    assert caught.value.where == "the command line: job.1.workers" and caught.value.what.startswith("1 is less than 2.")


def test_who_is_gone_while_a_link_is_down_is_said_with_it() -> None:
    spec = read(None, {"event": [{"at": "1s", "link": "s1-s2", "state": "down"}]})
    (plan, *_) = plans(resolve(spec))
    with (
        pytest.raises(GoneError, match=r"worker 1 is gone\n.* s1-s2 .* 1 s") as caught,
        explained(plan),
    ):
        raise GoneError(1, "worker 1 is gone")
    assert caught.value.job == 1
