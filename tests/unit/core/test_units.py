import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core import units
from testbed.core.units import Duration, Quantity, Rate, Size, UnitError, parse_fraction


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Rate, "500mbit", 500_000_000),
        (Rate, "50Gbit/s", 50_000_000_000),
        (Rate, "2.5 gbit", 2_500_000_000),
        (Size, "28MB", 28_000_000),
        (Size, "64KiB", 65536),
        (Size, "2.125GB", 2_125_000_000),
        (Duration, "340ms", 340_000_000),
        (Duration, "1.5us", 1500),
        (Duration, "1.5µs", 1500),
    ],
)
def test_reads(kind: type[Quantity], text: str, value: int) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (Rate, "500", "has no unit"),
        (Rate, "500mbps", "for bits, write 500mbit"),
        (Rate, "10Gbps", "10gbit"),
        (Size, "10Gbps", "not a unit of a size"),
        (Rate, "-1mbit", "negative"),
        (Rate, "1e30gbit", "too large"),
        (Rate, "fast", "is not a rate"),
        (Rate, "", "is not a rate"),
        (Size, "1ms", "not a unit of a size"),
        (Duration, "1MB", "not a unit of a time"),
        (Duration, "nan ms", "is not a time"),
    ],
)
def test_refuses(kind: type[Quantity], text: str, says: str) -> None:
    with pytest.raises(UnitError, match=says):
        kind.parse(text)


@given(st.integers(0, 10**12), st.sampled_from(["ns", "us", "ms"]))
def test_durations_scale_exactly(number: int, unit: str) -> None:
    scale = {"ns": 1, "us": 1000, "ms": 10**6}[unit]
    if number * scale <= Duration.limit:
        assert Duration.parse(f"{number}{unit}") == number * scale


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for kind in (Rate, Size, Duration):
        try:
            assert 0 <= kind.parse(text) <= kind.limit
        except UnitError as error:
            assert str(error)


def test_fractions() -> None:
    assert parse_fraction("2%") == 0.02
    assert parse_fraction("0.5") == 0.5
    for wrong in ("2", "-1%", "x", "1ms"):
        with pytest.raises(UnitError):
            parse_fraction(wrong)


@given(st.floats(1, 9e14))
def test_bytes_and_rates_for_people_have_no_exponent_and_the_right_unit(value: float) -> None:
    for said, digits in ((units.size_text(value), 3), (units.rate_text(value), 6)):
        number, unit = said.split()
        assert "e" not in number and 1 <= float(number) < 1000
        scale = next(s for u, s in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1)) if unit.startswith(u))
        assert float(number) * scale == pytest.approx(value, rel=0.6 * 10 ** (1 - digits))


@pytest.mark.parametrize(
    ("count", "said"), [(2.88e6, "2.88 MB"), (999_999, "1 MB"), (303_000, "303 kB"), (60, "60 B"), (0, "0 B")]
)
def test_bytes_for_people(count: float, said: str) -> None:
    assert units.size_text(count) == said
