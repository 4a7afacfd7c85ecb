"""A field is declared once: flag, help, schema, documentation and command follow."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import spec
from testbed.cli import main
from testbed.core.errors import EXIT_OK, RequestError
from testbed.core.runs.manifest import Asked
from testbed.planning import names
from testbed.report import rerun_command
from testbed.spec import Spec, field_tables, fields, schema, sweep
from testbed.spec.experiment import Event, LinkSpec
from testbed.spec.job import Job

ROOT = Path(__file__).parents[3]
# A field `start_delay`: every job starts so much later. What is written, in which file, and behind which line.
DIFF = {
    "testbed/spec/experiment.py": (
        "    jobs: Annotated[int,",
        '    start_delay: Annotated[Duration, field("delay of every start", group="workload", high="1h")] = '
        "msgspec.field(default_factory=lambda: Duration(0))\n",
    ),
    "testbed/planning/jobs.py": (
        "    return [at if one.job.offset is None",
        "    drawn = [at + int(spec.start_delay) for at in drawn]\n",
    ),
}


def test_every_field_says_what_it_means() -> None:
    for kind in (Spec, LinkSpec, Event, Job):
        for name, field in fields.of_struct(kind).items():
            assert field.declaration.description and (kind is not Spec or field.declaration.group in fields.GROUPS), (
                name
            )


def test_help_and_schema_follow(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    said = "".join(capsys.readouterr().out.split())
    properties = schema.schema()["$defs"]["Spec"]["properties"]
    for name, field in fields.of_struct(Spec).items():
        assert properties[name]["description"].startswith(field.declaration.description)
        assert not field.declaration.flag or "".join(field.help.split()) in said


def test_the_page_of_fields_is_printed_anew(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m testbed schema --markdown > docs/reference/fields.md`"""
    assert main(["schema", "--markdown"]) == EXIT_OK
    assert capsys.readouterr().out == field_tables.page() == (ROOT / "docs/reference/fields.md").read_text()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rto_min": "1ms", "system": ["reno", "cubic"]}, ["--rto-min", "1ms", "--system", "reno", "cubic"]),
        ({"job": ["s1", "s2"], "set": ["a=1", "b=2"]}, ["--job", "s1", "--job", "s2", "--set", "a=1", "--set", "b=2"]),
        ({"quick": True, "jobs": 3}, ["--quick", "--jobs", "3"]),
    ],
)
def test_the_command_that_asks_for_the_same(given: dict[str, Any], words: list[str]) -> None:
    assert fields.words(Spec, given) == words
    assert {word for word in words if word.startswith("--")} <= rerun_command.VALUES | rerun_command.SWITCHES


@pytest.mark.slow
def test_a_field_more_touches_three_files_at_most(tmp_path: Path) -> None:
    """One is added to a copy of the engine, and its flag, limits, help, schema, page, command and effect are there."""
    for folder in ("testbed", "topologies", "workloads", "analysis", "kernel"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file, (line, more) in DIFF.items():
        text = (tmp_path / file).read_text()
        assert text.count(line) == 1
        (tmp_path / file).write_text(text.replace(line, more + line))
    assert len(DIFF) <= 3

    def called(*words: str, code: int = EXIT_OK) -> str:
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    run = ("-m", "testbed", "run", "--on", "flow", "--jobs", "1", "--iterations", "3", "--system", "reno", "--quiet")
    assert "--start-delay TIME" in called("-m", "testbed", "run", "--help")
    assert (
        json.loads(called("-m", "testbed", "schema"))["$defs"]["Spec"]["properties"]["start_delay"]["default"] == "0ns"
    )
    assert "`start_delay`" in called("-m", "testbed", "schema", "--markdown")
    called(*run, "--start-delay", "2h", code=2)
    called(*run, "--name", "usual")
    called(*run, "--name", "later", "--start-delay", "5s")
    starts = []
    for name in ("usual", "later"):
        (table,) = (tmp_path / "results" / name).glob("reno/1/iterations.csv")
        starts.append(float(next(csv.DictReader(table.read_text().splitlines()))["start_s"]))
    assert starts[1] == pytest.approx(starts[0] + 5)
    offered = "from testbed.report import rerun_command as r; print(r.command(('mltcp', 'run', '--start-delay', '5s'), '', 'out'))"
    assert "--start-delay 5s" in called("-c", offered)


OLD = {
    "offsets": "overlapped", "window": "64kB", "partition": "16kB", "bands": "4,drop", "sample": "5ms", "messages": "full",
    "job_order": "drawn", "acks": "first", "loss": "80%/0.1%/5%", "alone": "none", "scale_of": "10gbit",
}  # fmt: skip
TODAY = {
    "start_offsets": "clustered", "credit_bytes": "64kB", "partition_bytes": "16kB", "priority_queues": "4,drop-non-ect",
    "sample_interval": "5ms", "message_log": "per-message", "job_order": "shuffled", "ack_priority": "on",
    "loss": "ge:loss=80%,p=0.1%,r=5%", "isolated_runs": "none", "represents_rate": "10gbit",
}  # fmt: skip


def test_old_names_and_words_keep_working_in_a_file(tmp_path: Path) -> None:
    """In its tables, too; names of folders stay those of before."""
    made = []
    for given, table, credit, loss in (
        (OLD, "realtime", "window", "60%/1%/20%"), (TODAY, "real-clock", "credit_bytes", "ge:loss=60%,p=1%,r=20%")
    ):  # fmt: skip
        bands = next(name for name in given if name in ("bands", "priority_queues"))
        file = tmp_path / table / "mine.toml"
        file.parent.mkdir()
        file.write_text(
            "".join(f'{name} = "{value}"\n' for name, value in given.items() if name != bands)
            + f'[[job]]\ntrace = "s1"\n{credit} = "32kB"\n[link.s1-s2]\nloss = "{loss}"\n[{table}]\nseeds = 2\n'
            + f'[quick]\n{credit} = "48kB"\n[sweep]\n{bands} = ["1", "{given[bands]}"]\n"job.0.{credit}" = ["32kB", "48kB"]\n'
        )
        made += [sweep.read(str(file), {"quick": True}), sweep.read(str(file), {"on": "host"})]
    assert made[:2] == made[2:]
    assert made[0][0].job[0].credit_bytes == 32_000 and made[0][0].credit_bytes == 48_000 and made[1][0].seeds == 2
    assert "mine.bands-4_drop.window-48kB" in {one.name for one in made[0]}


def test_old_names_and_words_keep_working_as_flags(capsys: pytest.CaptureFixture[str]) -> None:
    told, run = [], ("run", "--jobs", "1", "--workers", "3", "--topo", "star")
    for given in (OLD, TODAY):
        words = [word for name, value in given.items() for word in (fields.flag(name), value)]
        assert main([*run, *words, "--on", "uml", "--json", "--dry-run"]) == EXIT_OK
        told.append(capsys.readouterr().out)
        sets = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
        assert main([*run, *sets, "--on", "uml", "--json", "--dry-run"]) == EXIT_OK
        told.append(capsys.readouterr().out)
    assert len(set(told)) == 1


def test_a_stored_request_may_have_old_names() -> None:
    old, today = (Asked({"jobs": 4, **given}, {}) for given in (OLD, TODAY))
    assert names.differences(old, today) == [] and names.digest(old) == names.digest(today)


def test_two_names_of_one_field_are_refused() -> None:
    for given in (
        {"window": "1kB", "credit_bytes": "1kB"},
        {"job": [{"trace": "s1", "window": "1kB", "credit_bytes": "1kB"}]},
    ):
        with pytest.raises(RequestError, match="credit_bytes"):
            spec.make(given, {}, "here")


def test_a_campaign_prints_nothing() -> None:
    for path in (ROOT / "testbed" / "campaign").rglob("*.py"):
        text = path.read_text()
        assert "print(" not in text and "rich" not in text.replace('"rich"', ""), path
