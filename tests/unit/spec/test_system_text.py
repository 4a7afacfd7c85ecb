"""The text form of a system: one grammar for every kind, and what each text has always asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import registry, transports
from testbed.core import system_text
from testbed.core.errors import RequestError
from testbed.core.options import OptionError
from testbed.core.system_text import Part, SystemText
from testbed.spec import systems

# text, folder, role, transport or flow scheduler, congestion controls with their constants
TEXTS: list[tuple[str, str, str, str, list[list[Any]]]] = [
    ("reno", "reno", "baseline", "tcp", [["reno", {}]]),
    ("reno+cubic", "reno+cubic", "baseline", "tcp", [["reno", {}], ["cubic", {}]]),
    ("reno+mltcp_reno:slope=2", "reno+mltcp_reno-75b102d1", "treatment", "tcp", [["reno", {}], ["mltcp_reno:slope=2", {"slope": 2048}]]),
    ("cubic+mltcp_cubic", "cubic+mltcp_cubic", "treatment", "tcp", [["cubic", {}], ["mltcp_cubic", {}]]),
    ("mltcp_cubic:slope=0,intercept=1,total_bytes=1GB+mltcp_cubic:slope=0,intercept=0.25,total_bytes=1GB", "mltcp_cubic+mltcp_cubic-5a9bde2d", "treatment", "tcp", [["mltcp_cubic:slope=0,intercept=1,total_bytes=1GB", {"intercept": 1024, "slope": 0, "total_bytes": 1000000000}], ["mltcp_cubic:slope=0,intercept=0.25,total_bytes=1GB", {"intercept": 256, "slope": 0, "total_bytes": 1000000000}]]),
    ("mltcp_cubic:slope=0,preset=author,total_bytes=1MB,intercept=1", "mltcp_cubic-bb01d6d9", "treatment", "tcp", [["mltcp_cubic:slope=0,preset=author,total_bytes=1MB,intercept=1", {"gap_factor": 922, "intercept": 1024, "restart": 3, "slope": 0, "total_bytes": 1000000}]]),
    ("mltcp_dcqcn:preset=adapter,slope=0,intercept=1", "mltcp_dcqcn-05446da7", "treatment", "tcp", [["mltcp_dcqcn:preset=adapter,slope=0,intercept=1", {"alpha_timer": 1, "byte_counter": 32767, "cnp_interval": 4, "fast_recovery": 1, "g": 5, "intercept": 1024, "r_ai": 5000, "r_hai": 50000, "rate_timer": 300, "slope": 0}]]),
    ("mltcp_dcqcn:preset=recommended", "mltcp_dcqcn-74ae3747", "treatment", "tcp", [["mltcp_dcqcn:preset=recommended", {}]]),
    ("mltcp_dcqcn:r_ai=80mbit", "mltcp_dcqcn-d62fd175", "treatment", "tcp", [["mltcp_dcqcn:r_ai=80mbit", {"r_ai": 80000}]]),
    ("mltcp_reno:preset=author,total_bytes=28MB", "mltcp_reno-9e09c450", "treatment", "tcp", [["mltcp_reno:preset=author,total_bytes=28MB", {"gap_factor": 922, "intercept": 256, "restart": 3, "slope": 4096, "total_bytes": 28000000}]]),
    ("mltcp_reno:slope=-1.75,intercept=2", "mltcp_reno-77edf4b9", "treatment", "tcp", [["mltcp_reno:slope=-1.75,intercept=2", {"intercept": 2048, "slope": -1792}]]),
    ("mltcp_reno:share=mark", "mltcp_reno-57b04be6", "treatment", "tcp", [["mltcp_reno:share=mark", {"share": 1}]]),
    ("mltcp_reno:slope=2,share=mark", "mltcp_reno-6170cf61", "treatment", "tcp", [["mltcp_reno:slope=2,share=mark", {"share": 1, "slope": 2048}]]),
    ("mltcp_reno:slope=2,close=0.5,share=mark", "mltcp_reno-6f08be89", "treatment", "tcp:close=0.5", [["mltcp_reno:slope=2,share=mark", {"share": 1, "slope": 2048}]]),
    ("mltcp_reno:share=mark,send_fraction=0.8", "mltcp_reno-ab2a6147", "treatment", "tcp:send_fraction=0.8", [["mltcp_reno:share=mark", {"share": 1}]]),
    ("mltcp_reno:share=mark,given=lowat,apply=both,floor=10", "mltcp_reno-2a1ec0e1", "treatment", "tcp", [["mltcp_reno:share=mark,given=lowat,apply=both,floor=10", {"apply": 2, "floor_cwnd": 10, "given": 1, "share": 1}]]),
    ("mltcp_dcqcn:share=mark", "mltcp_dcqcn-05cddcaf", "treatment", "tcp", [["mltcp_dcqcn:share=mark", {"share": 1}]]),
    ("mltcp_reno:apply=decrease", "mltcp_reno-4dc61f77", "treatment", "tcp", [["mltcp_reno:apply=decrease", {"apply": 1}]]),
    ("mltcp_reno:floor=0", "mltcp_reno-b68420f7", "treatment", "tcp", [["mltcp_reno:floor=0", {"floor_cwnd": 0}]]),
    ("mltcp_reno:slope=1.0,label=my F", "mltcp_reno-2994aecc", "treatment", "tcp", [["mltcp_reno:slope=1.0", {"slope": 1024}]]),
    ("mltcp_reno:label=a,slope=2+reno:label=a", "mltcp_reno+reno-8c1926df", "treatment", "tcp", [["mltcp_reno:slope=2", {"slope": 2048}], ["reno", {}]]),
    ("reno:share=0.8", "reno-dabc75c7", "baseline", "tcp:share=0.8", [["reno", {}]]),
    ("reno:send_fraction=0.126", "reno-fe0795ad", "baseline", "tcp:send_fraction=0.126", [["reno", {}]]),
    ("reno:close=0.8", "reno-bc184e57", "baseline", "tcp:close=0.8", [["reno", {}]]),
    ("reno:early_close=0.8", "reno-de3b7a15", "baseline", "tcp:early_close=0.8", [["reno", {}]]),
    ("reno:spray=on", "reno-655041b8", "baseline", "tcp:spray=on", [["reno", {}]]),
    ("dctcp:share=0.9,spray=on", "dctcp-29dc204e", "baseline", "tcp:share=0.9,spray=on", [["dctcp", {}]]),
    ("dctcp:send_fraction=0.9,role=reference", "dctcp-df845054", "reference", "tcp:send_fraction=0.9", [["dctcp", {}]]),
    ("bbr:share=0.65", "bbr-76ebd67b", "baseline", "tcp:share=0.65", [["bbr", {}]]),
    ("ltp", "ltp", "treatment", "ltp", []),
    ("ltp:broadcast=tcp:cubic", "ltp-bbecc31b", "treatment", "ltp:broadcast=tcp:cubic", []),
    ("ltp:c=5ms,role=reference", "ltp-3670da06", "reference", "ltp:c=5ms", []),
    ("ltp:c=10ms,rtts=2,rise=2,epoch=3,per=round,coalesce=1us,silence=9s", "ltp-0e408829", "treatment", "ltp:c=10ms,rtts=2,rise=2,epoch=3,per=round,coalesce=1us,silence=9s", []),
    ("ltp:fraction=0.8,label=LTP", "ltp-41fd5d20", "treatment", "ltp:fraction=0.8", []),
    ("ltp:fraction=1,f=1.75/0.25", "ltp-760e6acc", "treatment", "ltp:fraction=1,f=1.75/0.25", []),
    ("ltp:label=a b,tolerance=1%", "ltp-80bdf036", "treatment", "ltp:tolerance=1%", []),
    ("mlt:bands=1+apart,spray=off,rate=dctcp", "mlt-42b3626c", "treatment", "mlt:bands=1+apart,spray=off,rate=dctcp", []),
    ("mlt:bands=2+drop", "mlt-f0768d36", "treatment", "mlt:bands=2+drop", []),
    ("mlt:bands=4+solved", "mlt-e2f4fafc", "treatment", "mlt:bands=4+solved", []),
    ("mlt:rate=dctcp,bands=2+drop", "mlt-de836ff9", "treatment", "mlt:rate=dctcp,bands=2+drop", []),
    ("mlt:tolerance=5%,spray=off,rate=dctcp,bands=2+drop", "mlt-cabf3756", "treatment", "mlt:tolerance=5%,spray=off,rate=dctcp,bands=2+drop", []),
    ("mlt:missing=keep,ring=end,resync=10", "mlt-9d27f2c9", "treatment", "mlt:missing=keep,ring=end,resync=10", []),
    ("mlt:spray=hashed:64", "mlt-812b2947", "treatment", "mlt:spray=hashed:64", []),
    ("mlt:tolerance=phase:20%/0%/10,ring=end", "mlt-1f9ae090", "treatment", "mlt:tolerance=phase:20%/0%/10,ring=end", []),
    ("mlt:low=1us,high=2us,first=2,wins=increase,between=gradient", "mlt-4748d310", "treatment", "mlt:low=1us,high=2us,first=2,wins=increase,between=gradient", []),
    ("mlt:parameters=whole,bands=1+drop,rate=dctcp,first=10,tolerance=0.3,tag=element-median", "mlt-0a2db8a9", "treatment", "mlt:parameters=whole,bands=1+drop,rate=dctcp,first=10,tolerance=0.3,tag=element-median", []),
    ("dlcp:tolerance=phase:0%/40%/10", "dlcp-d3b9971b", "treatment", "dlcp:tolerance=phase:0%/40%/10", []),
    ("optireduce:rounds=5,percentile=90,wait=0.3,broadcast=whole", "optireduce-cd93c7c6", "treatment", "optireduce:rounds=5,percentile=90,wait=0.3,broadcast=whole", []),
    ("cassini:step=2,over=cubic", "cassini-1a127c47", "reference", "cassini:step=2,over=cubic", []),
    ("unfair:over=cubic,weights=3/1", "unfair-78223f62", "reference", "unfair:over=cubic,weights=3/1", []),
    ("priority:over=dctcp,bands=4", "priority-0428f34d", "reference", "priority:over=dctcp,bands=4", []),
    ("lretf:preempt=no", "lretf-4a08de09", "reference", "lretf:preempt=no", []),
]  # fmt: skip
NAMES = st.text("abcdefghijklmnopqrstuvwxyz_./", min_size=1, max_size=9)
VALUES = st.text("abc019.%/:_- ", max_size=9)
PARTS = st.builds(Part, NAMES, st.lists(st.tuples(NAMES, VALUES), max_size=3).map(tuple))


@pytest.mark.parametrize(("text", "folder", "role", "carried_by", "controls"), TEXTS)
def test_a_text_asks_for_the_same_as_ever(
    text: str, folder: str, role: str, carried_by: str, controls: list[Any]
) -> None:
    found = systems.parse(text)
    assert (found.typed, found.folder, found.role) == (text, folder, role)
    assert (found.flow_scheduler or found.transport) == carried_by
    assert [[control.spec, control.constants] for control in found.congestion] == controls


@given(
    typed=st.builds(
        SystemText, st.lists(PARTS, min_size=1, max_size=3).map(tuple), st.none() | VALUES, st.none() | VALUES
    )
)
def test_a_text_is_read_as_what_it_was_made_from(typed: SystemText) -> None:
    whole = [part for part in typed.parts if not set(dict(part.options)) & set(system_text.WHOLE)]
    if len(whole) == len(typed.parts):
        assert system_text.parse(str(typed), lambda _: True) == typed


def test_a_plus_is_part_of_a_value_where_no_jobs_take_turns() -> None:
    assert [part.name for part in systems.read("reno:close=0.8+cubic").parts] == ["reno", "cubic"]
    assert systems.read("mlt:bands=2+drop,acks=3").parts == (Part("mlt", (("bands", "2+drop"), ("acks", "3"))),)
    assert systems.read("./mine.py:kind=a+b,label=x") == SystemText((Part("./mine.py", (("kind", "a+b"),)),), "x")
    for text in ("mlt:bands=2+drop+reno", "reno+mlt:bands=2+drop", "ltp+reno", "cassini:step=5+reno"):
        with pytest.raises(RequestError):
            systems.parse(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("mlt:acks=10.9", ["acks", "10.9"]), ("dcqcn:fast_recovery=1.5", ["fast_recovery", "1.5"]), ("pias:bands=2.5", ["bands", "2.5"]),
        ("ltp:fractoin=0.9", ["fractoin", "fraction"]), ("mltcp_reno:slop=1", ["slop", "slope"]), ("reno:send_fracton=0.5", ["send_fraction"]),
        ("cassini:stop=5", ["stop", "step"]), ("mlt:acks=3,acks=3", ["acks"]), ("mltcp_reno:slope=1,slope=1", ["slope"]), ("ltp:fraction", ["fraction"]),
        ("reno:close=0.8,early_close=0.8", ["early_close"]), ("mltcp_reno:preset=papers", ["papers", "paper"]), ("unfair:=3", ["=3"]),
    ],
)  # fmt: skip
def test_every_kind_refuses_alike(text: str, names: list[str]) -> None:
    with pytest.raises(RequestError) as refused:
        systems.parse(text)
    assert all(name in str(refused.value) for name in names)


def test_an_installed_transport_is_a_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "installed", lambda kind: ("theirs",) if kind is registry.TRANSPORT else ())
    monkeypatch.setattr(
        registry, "find", lambda kind, name, find=registry.find: find(kind, "ltp" if name == "theirs" else name)
    )
    found = systems.parse("theirs:fraction=0.7")
    assert (found.name, found.role, transports.parse(found.transport).options.fraction) == ("theirs", "treatment", 0.7)


def test_an_option_without_a_value_is_no_option() -> None:
    with pytest.raises(OptionError):
        systems.parse("reno:x=1")
    with pytest.raises(RequestError):
        system_text.part("reno:x")
    with pytest.raises(RequestError):
        Part("ltp").having([("fraction", "0.8,acks=3")])
