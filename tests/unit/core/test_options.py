"""Options of every kind are typed: what is no value of an option is refused, and nothing is rounded on the way in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import transports
from testbed.congestion import catalogue
from testbed.core import options
from testbed.core.errors import RequestError
from testbed.replay import training
from testbed.schedulers import flow, job
from testbed.spec import systems

SIMPLE = (
    options.Integer, options.Number, options.Fraction, options.OneOf, options.Position, options.Boolean, options.Time, options.Seconds,
    options.Bytes, options.Name,
)  # fmt: skip
NEVER = ("", " ", "nan", "inf", "-inf", "NaN", "1_0", "0x10", "--", "1;2", "1e999", "\0", "9" * 400)


def option_readers() -> Iterator[tuple[str, Callable[[str], Any], Any]]:
    """Every option that there is: its name, how it is read, and its default."""
    modules: dict[str, Any] = {name: transports.find(name) for name in transports.names()}
    modules |= {name: job.find(name) for name in job.names()}
    modules |= {name: flow.find(name) for name in flow.names()}
    for name, holder in {**{name: module.Options for name, module in modules.items()}, "cnn": training.Options}.items():
        for one in fields(holder):
            yield f"{name}:{one.name}", one.metadata["read"], one.default


READERS = {name: (read, default) for name, read, default in option_readers()}
PARAMETERS = {
    f"{name}:{one.name}": (name, one) for name, family in catalogue.families().items() for one in family.parameters
}


def test_there_are_options_of_every_type() -> None:
    kinds = {type(read) for read, _ in READERS.values()}
    assert {options.Integer, options.Number, options.Fraction, options.OneOf, options.Boolean, options.Time} <= kinds
    assert len(READERS) > 60 and len(PARAMETERS) > 40


@pytest.mark.parametrize("name", READERS)
def test_what_no_option_takes_is_refused(name: str) -> None:
    read, _ = READERS[name]
    for text in NEVER:
        if isinstance(read, options.Name) and text.strip():
            continue  # looked up elsewhere
        with pytest.raises((ValueError, RequestError)):
            read(text)


@pytest.mark.parametrize("name", [name for name, (read, _) in READERS.items() if isinstance(read, options.Integer)])
@given(value=st.floats(-1e7, 1e7).filter(lambda value: value != math.floor(value)))
def test_an_integer_is_not_rounded(name: str, value: float) -> None:
    with pytest.raises(ValueError, match="whole number"):
        READERS[name][0](str(value))


@pytest.mark.parametrize("name", [name for name, (read, _) in READERS.items() if isinstance(read, options.Integer | options.Number | options.Fraction)])  # fmt: skip
def test_the_ends_of_a_range_are_in_it_and_nothing_beyond(name: str) -> None:
    read, default = READERS[name]
    assert isinstance(read, options.Integer | options.Number | options.Fraction)
    whole = isinstance(read, options.Integer)
    for end, step in ((read.low, -1), (read.high, 1)):
        if not (isinstance(read, options.Fraction) and end >= read.below):
            assert read(f"{end:.17g}") == end
        with pytest.raises(ValueError):
            read(f"{end + step if whole else math.nextafter(end, step * math.inf) + 1e-9 * step:.17g}")
    assert default is None or read.low <= default <= read.high


@pytest.mark.parametrize("text", ["mlt:acks=10.9", "mlt:resync=2.7", "ltp:reorder=3.9", "ltp:epoch=1.5", "optireduce:rounds=20.5", "optireduce:acks=1e1"])  # fmt: skip
def test_a_transport_with_a_part_of_an_integer_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        transports.parse(text)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_congestion_controls_are_typed(name: str) -> None:
    control, parameter = PARAMETERS[name]
    for text in NEVER:
        with pytest.raises(RequestError):
            catalogue.parse(f"{control}:{parameter.name}={text}")
    if isinstance(parameter.read, options.Integer):
        with pytest.raises(RequestError):
            catalogue.parse(f"{control}:{parameter.name}=1.5")


@pytest.mark.parametrize(
    "text",
    ["mltcp_reno:first_gap=1500ns", "dcqcn:r_ai=40500bit", "dcqcn:line_rate=1500kbit", "dcqcn:alpha_timer=55500ns"],
)
def test_a_quantity_is_not_rounded_to_the_unit_of_its_constant(text: str) -> None:
    with pytest.raises(RequestError):
        catalogue.parse(text)


def test_a_type_has_one_reader() -> None:
    """What is not of a simple type has a reader of its own: a pair, a share or a phase, a word with a number."""
    own = {name for name, (read, _) in READERS.items() if not isinstance(read, SIMPLE)}
    assert {name.partition(":")[2] for name in own} <= {
        "f",
        "lt",
        "broadcast",
        "tolerance",
        "bands",
        "spray",
        "step",
        "weights",
        "fill",
    }


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("ltp:c=10ms,rtts=2,rise=2,epoch=3,per=round,coalesce=1us,silence=9s", "ltp:deadline_slack=10ms,initial_rtts=2,lt_backoff=2,lt_epoch_rounds=3,lt_clock=per_round,rx_coalesce=1us,peer_timeout=9s"),
        ("ltp:per=worker", "ltp:lt_clock=per_worker"),
        ("mlt:low=1us,high=2us,first=2,wins=increase,between=gradient", "mlt:t_low=1us,t_high=2us,initial_fraction=2,on_conflict=increase,in_deadband=gradient"),
        ("mlt:missing=keep,ring=end,resync=10", "mlt:fill=local,loss_bound=end_to_end,sync_every=10"),
        ("dlcp:missing=local,ring=hop", "dlcp:fill=local,loss_bound=per_hop"),
        ("tcp:close=0.8,share=0.9", "tcp:early_close=0.8,send_fraction=0.9"),
        ("optireduce:coalesce=1us,silence=9s", "optireduce:rx_coalesce=1us,peer_timeout=9s"),
    ],
)  # fmt: skip
def test_an_alias_means_the_same_and_is_kept_out_of_help(alias: str, name: str) -> None:
    assert transports.parse(alias).options == transports.parse(name).options
    shown = options.effective(transports.parse(alias).options)
    assert {item.partition("=")[0] for item in name.partition(":")[2].split(",")} <= set(shown)
    with pytest.raises(options.OptionError):
        transports.parse(f"{alias},{name.partition(':')[2]}")


def test_aliases_of_a_training_and_behind_a_congestion_control() -> None:
    assert training.parse("cnn:disperse=on").options == training.parse("cnn:hadamard=on").options
    assert training.parse("cnn:fill=contributors").options == training.parse("cnn:fill=mean_of_received").options
    assert systems.parse("reno:close=0.8").transport == "tcp:close=0.8"
    assert systems.parse("reno:early_close=0.8").transport == "tcp:early_close=0.8"


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("mltcp_reno:share=mark,given=lowat,floor=10,apply=both", "mltcp_reno:shared_by=so_mark,bytes_hint=notsent_lowat,f_floor_cwnd=10,f_applies_to=both"),
        ("mltcp_dcqcn:share=off,given=off", "mltcp_dcqcn:shared_by=off,bytes_hint=off"),
    ],
)  # fmt: skip
def test_an_alias_of_a_parameter_means_the_same_and_is_kept_out_of_help(alias: str, name: str) -> None:
    older, newer = catalogue.parse(alias), catalogue.parse(name)
    assert older.constants == newer.constants and older.spec == alias
    told = options.meanings(catalogue.declared(catalogue.families()[older.name]))
    assert "shared_by" in told and "given" not in told.split() and "lowat," not in told
    with pytest.raises(options.OptionError):
        catalogue.parse(f"{alias},{name.partition(':')[2]}")


def test_share_is_of_the_name_that_it_stands_behind() -> None:
    """Both have it as another name: MLTCP of ``shared_by``, TCP of ``send_fraction``."""
    by_tcp, by_mltcp = systems.parse("reno:share=0.8"), systems.parse("mltcp_reno:share=mark")
    assert (by_tcp.transport, by_tcp.congestion[0].constants) == ("tcp:share=0.8", {})
    assert transports.parse(by_tcp.transport).options.send_fraction == 0.8
    assert (by_mltcp.transport, by_mltcp.congestion[0].constants) == ("tcp", {"share": 1})
    both = systems.parse("mltcp_reno:shared_by=so_mark,send_fraction=0.8")
    assert (both.transport, both.congestion[0].constants) == ("tcp:send_fraction=0.8", {"share": 1})
    for text in ("reno:share=mark", "mltcp_reno:share=0.8", "reno:shared_by=so_mark"):
        with pytest.raises(RequestError):
            systems.parse(text)
