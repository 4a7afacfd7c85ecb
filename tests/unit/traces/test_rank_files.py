"""Files of several ranks, and importers of whole jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.traces.importing import Request, import_files
from testbed.traces.rank_files import expanded, groups_beside, ignored, rank_of, read_groups
from testbed.traces.trace import TraceError, load, save

WHOLE_JOB = '''
"""A whole job: two ranks of a pipeline, each with a group of its own size."""

from testbed.core.units import Duration, Size
from testbed.traces.importing import JobProfile
from testbed.traces.operations import Operation, Role
from testbed.traces.process_groups import Found, Group, Job

TITLE = "toy job"
USES = frozenset({"group"})


def recognises(head, path):
    return head.startswith(b"job")


def read(path, request):
    raise NotImplementedError


def read_ranks(paths, request):
    gradients = Operation(id="gradients", kind="all_reduce", bytes=Size(500), group="dp", after=("sent",))
    first = (
        Operation(id="work", kind="compute", duration=Duration(10**6)),
        Operation(id="sent", kind="send", bytes=Size(100), peer="+1", after=("work",)),
        gradients,
    )
    last = (Operation(id="sent", kind="recv", bytes=Size(100), peer="-1"), gradients)
    found = Found(Group("dp", 2, ranks=(0, 1)), (("all_reduce", 1),), 500, chosen=True)
    roles = (Role("first", (0,), first), Role("last", (1,), last))
    return JobProfile(Job((), {"dp": ((0, 1),)}, roles), measured_by="by hand", groups=(found,))
'''


def test_a_folder_or_a_prefix_stands_for_the_files_of_all_ranks(tmp_path: Path) -> None:
    names = ["w.10.et", "w.2.et", "w.0.et"]
    for name in (*names, "groups.json", "other.0.json"):
        (tmp_path / name).write_text("{}")
    in_order = [tmp_path / name for name in ("w.0.et", "w.2.et", "w.10.et")]
    assert expanded([tmp_path]) == in_order
    assert expanded([tmp_path / "w"]) == in_order
    assert ignored(tmp_path) == [tmp_path / "groups.json", tmp_path / "other.0.json"]
    assert expanded([tmp_path / "w.2.et", tmp_path / "nothing"]) == [tmp_path / "w.2.et", tmp_path / "nothing"]
    names = ["w.10.et", "3.json.gz", "w.et", "v2.et", "w_7.et", "rank5.et"]
    assert [rank_of(Path(name)) for name in names] == [10, 3, None, None, 7, 5]


def test_a_folder_without_files_of_ranks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text("{}")
    with pytest.raises(TraceError, match=r"without a file of a rank.*trace\.0\.json"):
        expanded([tmp_path])


def test_process_groups_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "comm_group.json"
    path.write_text(json.dumps({"1": [0, 1], "dp": [[0, 2], [1, 3]]}))
    assert read_groups(path) == {"1": ((0, 1),), "dp": ((0, 2), (1, 3))}
    assert groups_beside(tmp_path / "w.0.et") == path
    (tmp_path / "more_groups.json").write_text('{"1": [0]}')
    with pytest.raises(TraceError, match="--group-file"):
        groups_beside(tmp_path / "w.0.et")
    (tmp_path / "w.json").write_text('{"1": [0]}')
    assert groups_beside(tmp_path / "w.0.et") == tmp_path / "w.json"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"1": []}',
        '{"1": [0, 0]}',
        '{"1": [-1]}',
        '{"1": [[0], 1]}',
        '{"1": [true]}',
        '{"1": [[0], [0]]}',
    ],
)
def test_a_file_that_lists_no_process_groups(text: str, tmp_path: Path) -> None:
    path = tmp_path / "comm_group.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=r"comm_group\.json"):
        read_groups(path)


def test_an_importer_of_a_whole_job(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WHOLE_JOB)
    profile = tmp_path / "job.txt"
    profile.write_text("job")
    form = str(tmp_path / "mine.py")
    imported = import_files([profile], Request(), name="mine", model="", format=form)
    trace = imported.trace
    assert (trace.version, trace.ranks, [role.ranks for role in trace.roles]) == (2, 2, [(0,), (1,)])
    save(trace, tmp_path / "trace.json")
    assert load(str(tmp_path / "trace.json")) == trace
    alone = import_files([profile], Request(), name="mine", model="", format=form, only=frozenset({"all_reduce"})).trace
    assert [(op.id, op.after) for op in alone.roles[0].operations] == [("work", ()), ("gradients", ("work",))]
    with pytest.raises(TraceError, match="leaves nothing"):
        import_files([profile], Request(), name="mine", model="", format=form, only=frozenset({"broadcast"}))
    with pytest.raises(TraceError, match="no process group 'tp'"):
        import_files([profile], Request(group="tp"), name="mine", model="", format=form)
