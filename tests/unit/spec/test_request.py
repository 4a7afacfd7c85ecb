"""What a user may get wrong: one clear paragraph, the right exit code, no traceback."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import testbed.schedulers.job as placement
from testbed import spec
from testbed.cli import main
from testbed.congestion import catalogue
from testbed.core.errors import EXIT_OK, EXIT_REQUEST, RequestError
from testbed.core.runs.plan import EcnThreshold
from testbed.planning import links, names, plan
from testbed.spec.job import JobError, parse

BAD = [
    (["--topo", "torus"], "unknown topology 'torus'"),
    (["--topo", "./none.py"], "--topo: there is no file none.py."),
    (["--queue", "./none.py"], "queue: there is no file"),
    (["--rto-min", "5"], "--rto-min: '5' has no unit"),
    (["--iterations", "0"], "--iterations: 0 is not between 1 and 100000. Give a number in this range."),
    (["--topo", "dumbbell,x"], "whole numbers"),
    (["--topo", "dumbbell,1", "--jobs", "4"], "4 jobs of 2 workers need 8 hosts"),
    (["--topo", "ring,2"], "three bottlenecks or more, not 2"),
    (["--topo", "leafspine,2,2,2,0"], "cannot be made"),
    (["--place", "nowhere"], "scheduler: there is no file nowhere; unknown job scheduler 'nowhere'"),
    (["--place", "tests"], "scheduler: tests cannot be read"),
    (["--cc", "renoo"], "there is no congestion control 'renoo'"),
    (["--cc", "reno", "reno"], "names one twice"),
    (["--cc", "reno:slope=1"], "'slope=1' in 'reno:slope=1'"),
    (["--cc", "mltcp_reno:sloppe=1"], "slope ("),
    (["--cc", "mltcp_reno:slope=fast"], "slope in"),
    (["--cc", "mltcp_reno:slope=99"], "99 is not between -16 and 16"),
    (["--cc", "mltcp_reno:curve=round"], "is not one of linear, quadratic"),
    (["--cc", "mltcp_reno:r_ai=40mbit"], "'r_ai=40mbit'"),
    (["--cc", "dcqcn:slope=1"], "'slope=1'"),
    (["--cc", "dcqcn:r_ai=40"], "r_ai in"),
    (["--cc", "reno+renoo"], "there is no congestion control 'renoo'"),
    (["--cc", "reno+cubic+mltcp_reno"], "more congestion controls than there are jobs"),
    (["--cc", "./none.bpf.c"], "there is no file './none.bpf.c'"),
    (["--cc", "kernel/mltcp.c"], "Name it NAME.bpf.c"),
    (["--cc", "examples/tcp_mine.c:step=fast"], "is a whole number"),
    (["--cc", "mltcp_dctcp", "--ecn", "off"], "no bottleneck marks"),
    (["--collective", "gossip"], "unknown collective 'gossip'"),
    (["--channels", "0"], "channels: 0 is not between 1 and 32"),
    (["--noise", "pink:5%"], "'pink' is not a kind of noise. Give one of normal, lognormal, stragglers"),
    (["--job", "s2,workers=three"], "workers: give a whole number"),
    (["--job", "s2,worker=3"], "'worker=3' in 's2,worker=3' is not an option of a job"),
    (["--job", "s2,workers=2,workers=3"], "is given twice"),
    (["--job", "s2,compute=1ms,bytes=1MB"], "trace: a job has either a trace, or compute and bytes"),
    (["--job", "s2,offset=2s,leave=1s"], "leave: the job would leave after 1 s, before it starts"),
    (["--job", "s2,cc=renoo"], "there is no congestion control 'renoo'"),
    (["--job", "mltcp-50g,workers=4"], "mltcp-50g has send_recv operations, which send from rank 0 to rank 1"),
    (["--trace", "./README.md"], "README.md is not a trace, whose name ends in .json. For a profile"),
    (["--job", "synthetic,compute=1s"], "bytes: a synthetic job needs both"),
    (["--job", "synthetic,compute=1s,bytes=1MB,workers=3,collective=send_recv"], "workers"),
    (["--trace", "resnet50", "--buckets", "4"], "buckets: only a synthetic job"),
    (["--compute", "1s", "--bytes", "1MB", "--buckets", "0"], "buckets: 0 is not between"),
    (["--job", "s2", "--jobs", "2"], "--jobs: 2 requested, but 1 described. Leave out --jobs."),
    (["--job", "cmd:"], "cmd: is empty"),
    (["--job", "ddp:resnet18", "--noise", "5%", "--job", "./none.json"], "there is no trace './none.json'"),
    (["--trace", "resnet51"], "there is no trace 'resnet51'"),
    (["--trace", "resnet50", "--compute", "1ms", "--bytes", "1MB"], "not both"),
    (["--compute", "1ms"], "needs both"),
    (["--rate", "500"], "error: --rate: '500' has no unit. Write 500mbit or 10gbit."),
    (["--rate", "0mbit"], "rate"),
    (["--rate=-5mbit"], "negative"),
    (["--rate", "9e99gbit"], "too large to emulate"),
    (["--rate", "500mbps"], "for bits, write 500mbit"),
    (["--buffer", "1"], "has no unit"),
    (["--buffer", "100B"], "do not hold two frames"),
    (["--mtu", "12"], "not between 576"),
    (["--mtu", "big"], "invalid int value: 'big'"),
    (["--jobs", "0"], "jobs: 0 is not between"),
    (["--seeds", "0"], "seeds: 0"),
    (["--iterations", "-3"], "iterations: -3"),
    (["--noise", "2"], "not between 0 and 100 %"),
    (["--start-offsets", "5ms"], "1 given for 2 jobs"),
    (["--start-offsets", "5,6"], "has no unit"),
    (["--sample-interval", "1us"], "1ms"),
    (["--rto-min", "1s"], "not between 1ms and 200ms"),
    (["--delay", "3"], "has no unit"),
    (["--delay", "2s"], "more than 1s"),
    (["--jitter", "1ms"], "more than the delay"),
    (["--loss", "100%"], "not between 0% and 100%"),
    (["--loss", "lots"], "not a fraction"),
    (["--corrupt", "100%"], "not between 0% and 100%"),
    (["--ecn", "1GB"], "no ECN threshold"),
    (["--ecn", "20kB,10kB"], "no ECN threshold"),
    (["--ecn", "1kB,2kB,3%,4"], "no ECN threshold"),
    (["--ecn", "much"], "ecn:"),
    (["--on", "mars"], "on: 'mars' is no backend"),
    (["--on", "host", "--linux-source", "x"], "--linux-source is for --on uml"),
    (["--wall-limit", "5"], "has no unit"),
    (["--verify", "nowhere"], "is not a run directory"),
    (["--name", "../x"], "cannot name a folder"),
    (["--colour", "blue"], "unrecognized arguments"),
    (["--sytem", "reno"], "Did you mean '--system'?"),
    (["--iterationz=3"], "Did you mean '--iterations'?"),
    (["nowhere.toml"], "there is no file nowhere.toml. Name an experiment file"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_a_wrong_request(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *arguments, "--dry-run"]) == EXIT_REQUEST
    shown = capsys.readouterr().err
    assert says in shown
    assert shown.startswith("error: ")
    assert "Traceback" not in shown
    assert shown.count("\n") <= 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("jobs = ", "is not TOML"),
        ("jobs = 'two'", "jobs: give a whole number, not text"),
        ("job = 2", "job: give a list, not a whole number; write [[job]]"),
        ("job = [{trac = 's2'}]", "unknown field `trac`"),
        ("jobs = 3\n[[job]]\n[[job]]", "jobs: 3 requested, but 2 described"),
        ("rate = 500", "needs a unit"),
        ("cc = 'reno'", "system: give a list"),
        ("trace = 'nosuch'", "there is no trace"),
        ("ack_priority = 'second'", "ack_priority: Invalid enum value"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    assert main(["run", str(path), "--dry-run"]) == EXIT_REQUEST
    shown = capsys.readouterr().err
    assert says in shown
    assert "wrong.toml" in shown


def test_an_unreadable_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path)]) == EXIT_REQUEST
    assert "cannot be read" in capsys.readouterr().err
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert main(["run", str(binary)]) == EXIT_REQUEST
    assert "is not UTF-8 text" in capsys.readouterr().err


@pytest.mark.parametrize(
    "written",
    [
        "synthetic,compute=60ms,bytes=1MB",
        "compute=60ms,bytes=1MB",
        {"compute": "60ms", "bytes": "1MB"},
        {"trace": "synthetic", "compute": "60ms", "bytes": "1MB"},
    ],
    ids=str,
)
def test_a_synthetic_job_may_be_called_so_or_not(written: str | dict[str, str]) -> None:
    (one,) = spec.make({"job": [written]}, {}, "mine.toml").all_jobs
    assert (one.trace, one.label, one.compute, one.bytes) == (None, "synthetic", 60_000_000, 1_000_000)


def test_the_trace_of_an_experiment_may_be_synthetic() -> None:
    own = {"compute": "60ms", "bytes": "1MB"}
    assert spec.make({"trace": "synthetic", **own}, {}, "mine.toml") == spec.make(own, {}, "mine.toml")
    assert spec.make({"trace": "resnet50"}, {"trace": "synthetic"}, "mine.toml").all_jobs[0].label == "synthetic"


def test_options_of_a_job_may_come_first_if_it_names_no_trace() -> None:
    assert parse("window=1MB,workers=4") == {"credit_bytes": "1MB", "workers": 4}
    with pytest.raises(JobError, match="is not an option of a job"):
        parse("cmd=true")


def test_dry_run_prints_every_action(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--topo", "dumbbell", "--jobs", "4", "--dry-run"]) == EXIT_OK
    shown = capsys.readouterr().out
    assert (shown.count("run reno"), shown.count("run mltcp_reno")) == (2, 1)
    assert "s1-s2: 500 Mbit/s, buffer 303 kB, ECN marking above 60.6 kB" in shown


def test_dry_run_shows_delay_and_marking(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--delay", "1ms", "--jitter", "100us", "--loss", "0.1%", "--ecn", "20kB", "--rate", "1gbit", "--dry-run"]
    assert main(["run", *flags]) == EXIT_OK
    shown = capsys.readouterr().out
    assert "ECN marking above 20 kB" in shown
    # On the last hop of every path, there and back, and nowhere else.
    assert shown.count("delay 1 ms ± 0.1 ms, loss 0.1000%, corrupt 0.0000%") == 4 * 4
    assert "s2-r1: delay" in shown and "r1-s2: delay" not in shown


OWN_LINKS = """
from testbed.networks.routed import RoutedTopo
class Mine(RoutedTopo):
    def wire(self):
        for router in ("s1", "s2", "s3"):
            self.router(router)
        self.link("s1", "s2", bottleneck=True, rate="100mbit", buffer="2ms", ecn="on")
        self.link("s2", "s3"{extra})
        for host in ("h1", "h2"):
            self.link(self.addHost(host), "s1")
        for host in ("h3", "h4"):
            self.link(self.addHost(host), "s3")
topos = {{"mine": Mine}}
"""


def test_a_link_may_have_settings_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_LINKS.format(extra=', delay="5ms", loss="1%"'))
    made = plan.plans(plan.resolve(spec.read(None, {"topo": str(tmp_path / "mine.py"), "jobs": 1, "nic": "inf"})))[0]
    assert made.bottlenecks["s1-s2"].rate_bps == 100_000_000
    assert made.bottlenecks["s2-s1"].buffer_bytes == 25_000
    assert made.bottlenecks["s1-s2"].ecn_threshold == EcnThreshold(5_000, 5_000, 1.0)
    assert {name: wire.delay_ns for name, wire in made.wires.items()} == {"s2-s3": 5_000_000, "s3-s2": 5_000_000}
    assert made.base_rtt_s == pytest.approx(0.010 + 2 * 60 * 8 / 100e6)
    # The default job is made for the experiment's rate; its ideal time is that of this link.
    assert (made.jobs[0].ideal_s or 0) > 2


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (', delay="fast"', "link s2-s3: 'fast' is not a time"),
        (', bottleneck=True, rate="0%"', "link s2-s3: '0%' is 0 bit/s"),
        (', bottleneck=True, buffer="1us"', "link s2-s3: its buffer of 62 bytes does not hold two frames"),
        (', rate="1gbit"', "link s2-s3 sets rate, which only a bottleneck has"),
        (', delay="1ms", jitter="2ms"', "the jitter 2 ms is larger than the delay"),
    ],
)
def test_a_link_with_wrong_settings(extra: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(OWN_LINKS.format(extra=extra))
    assert main(["run", "--topo", str(tmp_path / "mine.py"), "--jobs", "1", "--dry-run"]) == EXIT_REQUEST
    assert words in capsys.readouterr().err


def test_flags_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("jobs = 3\nrate = '100mbit'\ntrace = 'resnet50'\n")
    asked = spec.read(str(path), {"jobs": 2, "compute": "1s", "bytes": "1MB"})
    assert (asked.jobs, asked.rate, asked.trace, asked.name) == (2, 100_000_000, None, "mine")


def test_the_ideal_iteration_counts_every_byte() -> None:
    # 28 MB + 0.5 s at 500 Mbit/s, MTU 1500: 0.968 s (docs/reference/file-formats.md)
    asked = spec.read(None, {"compute": "500ms", "bytes": "28MB"})
    assert plan.plans(plan.resolve(asked))[0].jobs[0].ideal_s == pytest.approx(0.9684, abs=1e-4)


def test_default_jobs_fill_96_percent_of_the_link() -> None:
    for jobs in (2, 4, 8):
        made = plan.plans(plan.resolve(spec.read(None, {"jobs": jobs})))[0]
        assert made.jobs[0].ideal_s == pytest.approx(1.0, abs=1e-6)
        compute = made.jobs[0].compute_ns / 1e9
        assert jobs * (1 - compute) == pytest.approx(0.96, abs=1e-6)


def test_offsets_are_drawn_from_the_seed_within_five_percent() -> None:
    def offsets(**changes: object) -> list[int]:
        return [job.offset_ns for job in plan.plans(plan.resolve(spec.read(None, {"jobs": 8, **changes})))[0].jobs]

    assert offsets() == offsets()
    assert offsets() != offsets(seed=2)
    assert max(offsets()) <= 0.05e9
    assert max(offsets(start_offsets="uniform")) > 0.05e9
    given = ",".join(f"{10 * i}ms" for i in range(8))
    assert offsets(offsets=given) == [10_000_000 * i for i in range(8)]


def test_each_run_is_followed_by_one_job_in_isolation() -> None:
    made = plan.plans(plan.resolve(spec.read(None, {"jobs": 3, "seeds": 2, "isolated_runs": "each"})))
    assert [(p.seed, p.system.name, p.alone) for p in made[:4]] == [
        (1, "reno", None), (1, "reno", 0), (1, "mltcp_reno", None), (1, "mltcp_reno", 0),
    ]  # fmt: skip
    assert [job.offset_ns for job in made[1].jobs] == [0]
    assert [p.measure_capacity for p in made] == [True] + [False] * 7


def test_variants_have_folders_of_their_own() -> None:
    made = plan.plans(plan.resolve(spec.read(None, {"cc": ["mltcp_reno", "mltcp_reno:slope=2"]})))
    folders = {p.folder for p in made if p.alone is None}
    assert len(folders) == 2
    assert Path("mltcp_reno/1") in folders


def test_jobs_take_turns() -> None:
    made = plan.plans(plan.resolve(spec.read(None, {"jobs": 3, "cc": ["reno+mltcp_reno:slope=2"]})))
    assert [job.cc.spec for job in made[0].jobs] == ["reno", "mltcp_reno:slope=2", "reno"]
    assert made[0].system.label == "reno+mltcp_reno:slope=2" and made[0].system.folder.startswith("reno+mltcp_reno-")
    assert [cc.name for cc in made[0].ccs] == ["reno", "mltcp_reno"]
    assert [job.cc.spec for job in made[1].jobs] == ["reno"]


@pytest.mark.parametrize(
    ("rate", "held"),
    [
        ("50gbit", (50_000, 40_000, 400_000, 10_000_000)),
        ("500mbit", (500, 500, 5_000, 125_000)),
        ("1mbit", (1, 1, 10, 1000)),
    ],
)
def test_dcqcn_fits_its_link(rate: str, held: tuple[int, ...]) -> None:
    """Published constants from 40 Gbit/s on, scaled below; what is asked for stays."""
    fields = {"rate": rate, "cc": ["mltcp_dcqcn"], "ecn": "on", "buffer": "20kB", "bytes": "100kB", "compute": "1ms"}
    constants = plan.plans(plan.resolve(spec.read(None, fields)))[0].system.congestion[0].constants
    assert tuple(constants[key] for key in ("line_rate", "r_ai", "r_hai", "byte_counter")) == held
    own = (
        plan.plans(plan.resolve(spec.read(None, {**fields, "cc": ["mltcp_dcqcn:r_ai=80mbit"]})))[0]
        .system.congestion[0]
        .constants
    )
    assert own["r_ai"] == 80_000


def test_one_of_your_own_is_named_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    module, program = (catalogue.parse(one) for one in ("examples/tcp_mine.c:step=4,slope=1.5", "examples/mine.bpf.c"))
    assert (module.name, module.constants) == ("mine", {"step": 4, "slope": 1536})
    assert catalogue.module(module) and not catalogue.program(module)
    assert catalogue.program(program) and not catalogue.module(program)
    assert program.folder == "mine"


def test_jobs_cross_the_bottleneck() -> None:
    topo, _ = links.load_topology(spec.read(None, {"jobs": 2, "workers": 3, "trace": "resnet50"}))
    assert placement.place(topo, [3, 3]) == [("l1", "l2", "r1"), ("l3", "l4", "r2")]
    with pytest.raises(RequestError, match="need 15 hosts, but the topology has 8"):
        placement.place(topo, [3] * 5)


def test_jobs_each_on_their_own_terms(tmp_path: Path) -> None:
    path = tmp_path / "mixed.toml"
    path.write_text("""
workers = 4
iterations = 7
[[job]]
trace = "resnet50"
collective = "tree"
channels = 2
[[job]]
compute = "1s"
bytes = "1MB"
workers = 2
offset = "3s"
leave = "9s"
cc = "cubic"
[[job]]
trace = "resnet50"
collective = "tree"
channels = 2
iterations = 3
""")
    made = plan.plans(plan.resolve(spec.read(str(path), {"cc": ["reno"]})))
    tree, synthetic, other = made[0].jobs
    assert [len(job.hosts) for job in made[0].jobs] == [4, 2, 4]
    assert [job.iterations for job in made[0].jobs] == [7, 7, 3]
    assert {op.algorithm for op in tree.collectives} == {"tree"}
    assert (tree.noise, synthetic.noise) == ("1.17%", "0%")
    assert (synthetic.offset_ns, synthetic.leave_ns, synthetic.cc.spec) == (3 * 10**9, 9 * 10**9, "cubic")
    assert [job.like for job in (tree, synthetic, other)] == [0, 1, 0]
    assert [one.alone for one in made] == [None, 0, 1]
    # A tree over two sides of a dumbbell: ranks 2 and 3 send their sums across, and hear the result.
    assert tree.ideal_s is not None and tree.ideal_s > 1.3 * 0.222


def test_a_parameter_server_takes_its_two_rounds_one_after_the_other() -> None:
    fields = {"jobs": 1, "trace": "s2", "workers": 2}
    ring, server = (
        plan.plans(plan.resolve(spec.read(None, {**fields, "collective": name})))[0].jobs[0].ideal_s or 0.0
        for name in ("ring", "parameter_server")
    )
    assert server - 1 == pytest.approx(2 * (ring - 1))


def test_other_congestion_controls_have_a_folder_of_their_own() -> None:
    def name(**flags: Any) -> str:
        return names.default_name(spec.read(None, flags))

    assert name() == name(cc=["reno", "mltcp_reno"]) == name(seeds=3, seed=2)  # more seeds add to what is there
    assert (
        len({name(), name(cc=["cubic", "mltcp_cubic"]), name(cc=["reno", "cassini"]), name(cc=["mltcp_reno", "reno"])})
        == 4
    )
    assert name(cc=["cubic"]) == name(system=["cubic"]) == "dumbbell-2xsynthetic-system-cubic"
    assert name(rate="50gbit", mtu=9000) == "dumbbell-2xsynthetic-rate-50gbit-mtu-9000"
    # What a name cannot hold is told apart all the same.
    odd = {name(cc=[f"mltcp_reno:slope={slope}"]) for slope in (1, "1.0")}
    assert len(odd) == 2 and all(
        re.fullmatch(r"dumbbell-2xsynthetic-system-mltcp_reno-slope-1.*-[0-9a-f]{6}", one) for one in odd
    )


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "-rf", "a b", "é", "x" * 201, "a\nb"])
def test_a_name_is_a_part_of_a_path(name: str) -> None:
    with pytest.raises(RequestError, match="cannot name a folder"):
        spec.read(None, {"name": name})
