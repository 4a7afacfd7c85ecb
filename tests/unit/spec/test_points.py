"""Files that stand on others, sweeps, fields by their path, events: what they stand for, and what is wrong with them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from testbed import spec
from testbed.backends.host import Host
from testbed.campaign import driver
from testbed.cli import dry_run, main
from testbed.core.errors import EXIT_OK, EXIT_REQUEST, RequestError
from testbed.linux.features import Features
from testbed.planning import plan
from testbed.spec import files, schedules, sweep
from testbed.spec.aliases import ALIASES

ROOT = Path(__file__).parents[3]
BASE = 'jobs = 2\nrate = "200mbit"\ntopo = "leafspine"\n[link.s1-l1]\nrate = "50mbit"\n'


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_file_stands_on_another(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    write(tmp_path / "below" / "base.toml", BASE + 'buffer = "2ms"\n')
    write(tmp_path / "mid.toml", 'base = "below/base.toml"\njobs = 3\n')
    top = write(tmp_path / "top.toml", 'base = "mid.toml"\nseeds = 4\n[link.s1-l1]\nbuffer = "9kB"\n')
    (made,) = sweep.read(top, {})
    assert (made.name, made.jobs, made.seeds, made.rate) == ("top", 3, 4, 200_000_000)
    assert (made.link["s1-l1"].rate, made.link["s1-l1"].buffer) == ("50mbit", "9kB")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('base = "wrong.toml"', "base: wrong.toml leads back to this file"),
        ('base = "none.toml"', "there is no file"),
        ("base = 3", 'name a file, as in base = "other.toml"'),
        ("sweep = 3", "sweep: must be a table of lists"),
        ("[sweep]", "sweep: must be a table of lists"),
        ("[sweep]\nrate = '1gbit'", "sweep: rate: must be a list of values, not '1gbit'"),
        ("[sweep]\nrate = []", "sweep: rate: must be a list"),
        ("[sweep]\nname = ['a']", "sweep: name cannot be swept"),
        ("[sweep]\non = ['uml']", "sweep: on cannot be swept"),
        ("[sweep]\nzip = 3", "sweep.zip: must be a table of lists of equal length"),
        ("[sweep.zip]\njobs = [1, 2]\nseeds = [1]", "but they have: jobs 2, seeds 1"),
        ("[sweep]\njobs = [1]\n[sweep.zip]\njobs = [1]", "jobs is in both sweep and sweep.zip"),
        ("[sweep]\njobs = [2, 'x']", "(jobs-x): jobs: give a whole number, not text"),
        ("[sweep]\n'job.0.trace' = ['s2']", "job"),
        ("[link.s1-s9]\nrate = '1mbit'", "link: there is no link 's1-s9' in dumbbell. Give one of"),
        ("[link.s1-s2]\nrat = '1mbit'", "link.s1-s2: unknown field `rat`. Did you mean 'rate'?"),
        ("[[event]]\nwhen = '1s'", "event.0: unknown field `when`. Known fields: at, link, rate, state"),
        ("[[job]]\ntrac = 's2'", "job.0: unknown field `trac`. Did you mean 'trace'?"),
        ("jbos = 3", "unknown field `jbos`. Did you mean 'jobs'?"),
        ("zzz = 3", "unknown field `zzz`. Known fields: name, topo, scheduler, jobs"),
        ("[link.l1-s1]\nrate = '1mbit'", "sets rate, which only a bottleneck has"),
        ("[[event]]\nat = '1s'\nlink = 's1-s9'\nrate = '1mbit'", "event.0: link: there is no bottleneck 's1-s9'. Give one of s1-s2, s2-s1"),
        ("[[event]]\nat = '1s'\nlink = 's1-s2'", "event.0: give either a rate or a state"),
        ("[[event]]\nat = '1s'\nlink = 's1-s2'\nrate = '1mbit'\nstate = 'up'", "event.0: give either a rate or a state"),
        ("[[event]]\nat = '1s'\nlink = 's1-s2'\nrate = '1kbit'", "event.0: rate: '1kbit' is 1000 bit/s"),
        ("[[event]]\nat = '1s'\nlink = 's1-s2'\nstate = 'gone'", "event.0.state"),
        ("[[event]]\nat = '1'\nlink = 's1-s2'\nstate = 'up'", "has no unit"),
        ("[[event]]\nlink = 's1-s2'\nstate = 'up'", "missing required field `at`"),
        (2 * "[[event]]\nat = '1s'\nlink = 's1-s2'\nstate = 'up'\n", "event.1: s1-s2 has another event at 1 s"),
        ("[link.s1-s2]\nrate = '50%'\n[link.s2-s1]\nrate = '20%'", "are the two directions of one link"),
        ("[job]\ntrace = 's2'", "write [[job]]"),
        ("cc = 'reno'", 'write system = ["reno", "mltcp_reno"]'),
        ("[[job]]\ntrace = 's2'\nworkers = 1", "job.0.workers: 1 is less than 2"),
        ("[[job]]\ntrace = 's2'\n[[job]]\ntrace = 's2'\ncc = 'renoo'", "job.1.cc: there is no congestion control"),
        ("topo = 'ring,2'", "cannot be made"),
        ("topo = 'dumbbell,3'\njobs = 2\nworkers = 3\ntrace = 's2'", "scheduler: spread puts each rank of a job behind another edge router"),
        ("topo = 'leafspine,2,0,2'", "at least one leaf, one spine"),
        ("cc = ['cassini']\ntopo = 'leafspine'", "a hash selects the paths of job 0"),
        ("cc = ['cassini:step=1/0']", "step in 'cassini:step=1/0'"),
        ("start_offsets = '5ms'", "start_offsets: 1 given for 2 jobs"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "wrong.toml", text)
    assert main(["sweep", path, "--dry-run"]) == EXIT_REQUEST
    shown = capsys.readouterr().err
    assert says in shown.replace("\n", " ")
    assert "wrong.toml" in shown and "Traceback" not in shown


def test_every_combination_and_lists_taken_together(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.toml",
        '[[job]]\ntrace = "s1"\n[[job]]\ntrace = "s2"\n[sweep]\nrate = ["100mbit", "1gbit"]\n"job.1.trace" = ["s2", "s3"]\n'
        '[sweep.zip]\nmtu = [1500, 9000]\nbuffer = ["1ms", "2ms"]\n',
    )
    made = sweep.read(path, {"seeds": 2})
    assert len(made) == 8 == len({one.name for one in made})
    assert {(one.mtu, one.buffer) for one in made} == {(1500, "1ms"), (9000, "2ms")}
    assert {one.job[1].trace for one in made} == {"s2", "s3"} and {one.job[0].trace for one in made} == {"s1"}
    assert all(one.seeds == 2 for one in made)
    assert "s.rate-100mbit.trace-s2.mtu-1500.buffer-1ms" in {one.name for one in made}
    assert len(driver.wanted([plan.planned(one) for one in made], tmp_path)) == sum(
        len(plan.plans(plan.resolve(one))) for one in made
    )


def test_values_that_are_written_alike_have_folders_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    for name in ("x/one.json", "one.json"):
        (tmp_path / name).write_text((ROOT / "examples/two_bursts.json").read_text())
    names = 'cc = [["mltcp_reno:slope=1,intercept=0.25"], ["mltcp_reno:slope=1,intercept=0.26"]]\ntrace = ["x/one.json", "one.json"]'
    made = sweep.read(write(tmp_path / "s.toml", f"[sweep]\n{names}\n"), {})
    assert len({one.name for one in made}) == 4
    assert all(str(tmp_path).replace("/", "_")[1:9] not in one.name for one in made)


def test_a_job_of_one_kind_takes_the_place_of_one_of_the_other(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", 'trace = "s2"\njobs = 4\n')
    child = write(tmp_path / "a.toml", 'base = "base.toml"\ncompute = "1s"\nbytes = "1MB"\n')
    (made,) = sweep.read(child, {})
    assert (made.trace, made.jobs) == (None, 4)
    (made,) = sweep.read(write(tmp_path / "b.toml", 'base = "base.toml"\n[[job]]\n[[job]]\ntrace = "s1"\n'), {})
    assert [job.trace for job in made.all_jobs] == ["s2", "s1"]
    (made,) = sweep.read(write(tmp_path / "c.toml", 'base = "a.toml"\n[sweep]\ntrace = ["s1"]\n'), {})
    assert (made.trace, made.compute) == ("s1", None)


def test_a_flag_that_every_job_overrules_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.toml", '[[job]]\ntrace = "s1"\nworkers = 3\n[[job]]\ntrace = "s2"\n')
    assert sweep.read(path, {"workers": 4})[0].all_jobs[1].workers == 4
    with pytest.raises(RequestError, match=r"--trace: .*a.toml .*--set job.0.trace="):
        sweep.read(path, {"trace": "s3"})
    with pytest.raises(RequestError, match="--set mtu=3: a flag also sets mtu"):
        sweep.read(path, {"mtu": 9000, "set": ["mtu=3"]})


def test_any_file_name_will_do(tmp_path: Path) -> None:
    assert sweep.read(write(tmp_path / "my übung.toml", ""), {})[0].name == "my_bung"


def test_what_is_swept_cannot_be_given(tmp_path: Path) -> None:
    path = write(tmp_path / "s.toml", "[sweep]\nseeds = [1, 2]\nrate = ['1gbit']\n")
    for flags in ({"seeds": 3}, {"set": ["rate=2gbit"]}):
        with pytest.raises(RequestError, match="the file sweeps"):
            sweep.read(path, flags)


def test_two_experiments_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    files = [write(tmp_path / "a.toml", "jobs = 2"), write(tmp_path / "x" / "a.toml", "jobs = 3")]
    with pytest.raises(RequestError, match="two experiments would be stored there"):
        driver.wanted([plan.planned(one) for file in files for one in sweep.read(file, {})], tmp_path)


def test_a_single_run_of_a_sweep_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "s.toml", "[sweep]\njobs = [1, 2]\n")
    assert main(["run", path, "--dry-run"]) == EXIT_REQUEST
    assert f"mltcp sweep {path}" in capsys.readouterr().err


def test_any_field_by_its_path(tmp_path: Path) -> None:
    path = write(tmp_path / "a.toml", '[[job]]\ntrace = "s1"\n[[job]]\ntrace = "s1"\n')
    flags = {"set": ["job.1.trace=s2", "link.s1-s2.buffer=9kB", 'cc=["cubic"]', "mtu=9000", "name=b"]}
    (made,) = sweep.read(path, flags)
    assert [job.trace for job in made.job] == ["s1", "s2"]
    assert (made.system, made.mtu, made.name, made.link["s1-s2"].buffer) == (("cubic",), 9000, "b", "9kB")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mtu", "write PATH=VALUE"),
        ("mut=3", "unknown field `mut`"),
        ("event.0.at=3s", "the file has no ..event.."),
        ("=5", "is not the path of a field"),
        ("job.3.trace=s1", "'3' is not a number from 0 to 0"),
        ("mtu.x=3", "mtu is 1500, which has no fields"),
        ("mtu=fast", "mtu: give a whole number"),
    ],
)
def test_a_wrong_path(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path / "a.toml", 'mtu = 1500\n[[job]]\ntrace = "s1"\n')
    with pytest.raises(RequestError, match="^.*" + says.replace("`", ".").replace("(", ".")):
        sweep.read(path, {"set": [text]})


def test_links_and_events_reach_the_plan(tmp_path: Path) -> None:
    event = "[[event]]\nat = '{}'\nlink = 's1-l1'\n{}\n"
    path = write(
        tmp_path / "a.toml", BASE + event.format("2s", "state = 'down'") + event.format("1s", "rate = '10mbit'")
    )
    made = plan.plans(plan.resolve(sweep.read(path, {})[0]))[0]
    assert made.bottlenecks["s1-l1"].rate_bps == made.bottlenecks["l1-s1"].rate_bps == 50_000_000
    assert [(one.at_ns, one.link, one.rate_bps, one.up) for one in made.events] == [
        (10**9, "s1-l1", 10**7, None), (10**9, "l1-s1", 10**7, None),
        (2 * 10**9, "s1-l1", None, False), (2 * 10**9, "l1-s1", None, False),
    ]  # fmt: skip
    assert "at 1 s s1-l1 becomes 10 Mbit/s" in "\n".join(dry_run.describe(made, Features()))
    assert "at 2 s s1-l1 becomes down" in "\n".join(dry_run.describe(made, Features()))


def test_files_are_named_from_where_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text((ROOT / "examples/two_bursts.json").read_text())
    text = 'topo = "./mine.py,3"\ncc = ["reno", "reno+./tcp_mine.c:step=4"]\ntrace = "mine.json"\njob = ["mine.json,workers=3", "s2"]\n'
    fields = spec.read_file(write(tmp_path / "a.toml", text + '[sweep]\n"job.0.trace" = ["s1", "mine.json"]\n'))
    assert fields["topo"] == f"{tmp_path}/mine.py,3" and fields["trace"] == f"{tmp_path}/mine.json"
    assert fields["system"] == ["reno", f"reno+{tmp_path}/tcp_mine.c:step=4"]
    assert fields["job"] == [f"{tmp_path}/mine.json,workers=3", "s2"]
    assert fields["sweep"]["job.0.trace"] == ["s1", f"{tmp_path}/mine.json"]
    (made,) = sweep.read(write(tmp_path / "b.toml", "[[job]]\ntrace = 'mine.json'\n"), {})
    assert plan.plans(plan.resolve(made))[0].jobs[0].trace == "two-bursts"


def test_rates_as_shares(tmp_path: Path) -> None:
    """A link's of the experiment's, an event's of what the link has at first."""
    text = "rate = '1gbit'\n[link.s1-s2]\nrate = '50%'\n[[event]]\nat = '1s'\nlink = 's1-s2'\nrate = '50%'\n"
    made = plan.plans(plan.resolve(sweep.read(write(tmp_path / "a.toml", text), {})[0]))[0]
    assert made.bottlenecks["s2-s1"].rate_bps == 500_000_000
    assert {event.rate_bps for event in made.events} == {250_000_000}


def test_the_schema_names_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == EXIT_OK
    schema: dict[str, Any] = json.loads(capsys.readouterr().out)
    known = set(schema["$defs"]["Spec"]["properties"])
    assert known == {*spec.Spec.__struct_fields__, *ALIASES, "base", "sweep", *files.OVERLAYS}
    for file in schedules.apart([str(path) for path in ROOT.glob("experiments/*.toml")])[1]:
        assert set(tomllib.loads(Path(file).read_text())) <= known, file


def test_the_dry_run_of_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "s.toml", "on = 'uml'\n[sweep]\njobs = [1, 2]\n")
    assert main(["sweep", path, "--dry-run"]) == EXIT_OK
    named = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert named[:2] == ["s.jobs-1", "s.jobs-2"]


def test_in_real_time_runs_do_not_run_beside_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "check", lambda self, plan: None)  # whatever this machine can do
    path = write(tmp_path / "s.toml", "cc = ['reno']\non = 'host'\n")
    assert main(["sweep", path, "-j", "2", "--out", str(tmp_path)]) == EXIT_REQUEST
    assert "disturb each other" in capsys.readouterr().err
    assert main(["sweep", path, "-j", "0"]) == EXIT_REQUEST
    assert "-j 0: not a number of concurrent runs" in capsys.readouterr().err


def test_an_experiment_for_virtual_time_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Among others it is left out and named; alone it is a wrong request; under virtual time nothing is said."""
    other = write(tmp_path / "other.toml", "jobs = 1\n")
    fast = write(tmp_path / "fast.toml", "rate = '50gbit'\n[real-clock]\nimpossible = 'it is too fast.'\n")
    said = f"{fast}: this experiment runs only under virtual time (--on uml): it is too fast."
    assert main(["sweep", fast, other, "--on", "host", "--dry-run"]) == EXIT_OK
    printed = capsys.readouterr()
    assert said in printed.err and printed.out.startswith("other-on-host: ") and "fast" not in printed.out
    assert main(["sweep", fast, "--on", "host", "--dry-run"]) == EXIT_REQUEST
    assert said in capsys.readouterr().err
    assert main(["sweep", fast, "--on", "uml", "--dry-run"]) == EXIT_OK
    assert capsys.readouterr().out.startswith("fast: ")


def test_earlier_names_of_fields_are_understood(tmp_path: Path) -> None:
    """``cc`` and ``place``, in a file and its tables, as flags, by their paths; both names at once are refused."""
    old = write(tmp_path / "old.toml", 'cc = ["cubic"]\nplace = "packed"\n[quick]\ncc = ["reno"]\n')
    new = write(tmp_path / "new.toml", 'system = ["cubic"]\nscheduler = "packed"\n[quick]\nsystem = ["reno"]\n')
    for flags in ({}, {"quick": True}, {"cc": ("bbr",)}, {"set": ["place=random"]}):
        (before,), (now,) = sweep.read(old, dict(flags)), sweep.read(new, dict(flags))
        assert (before.system, before.scheduler) == (now.system, now.scheduler)
    assert sweep.read(old, {"cc": ("bbr",)})[0].system == ("bbr",)
    both = write(tmp_path / "both.toml", 'cc = ["cubic"]\nsystem = ["reno"]\n')
    with pytest.raises(RequestError, match="cc and system ") as error:
        sweep.read(both, {})
    assert str(both) in str(error.value)
