"""LTP beside the best TCP: only where no TCP is missing that the other paths have."""

from __future__ import annotations

import pandas as pd

from analysis.figures import ltp_loss


def cell(*systems: str) -> ltp_loss.Cell:
    rows = pd.DataFrame({"system": systems, "lossy": False, "role": "baseline"})
    return "", 0.01, rows


def test_the_usual_tcps_are_those_of_most_paths() -> None:
    """BBR's runs of one path are invalid, and CUBIC was run on one alone."""
    cells = [cell("reno", "bbr", "cubic"), cell("reno", "bbr"), cell("reno")]
    assert ltp_loss._usual(cells) == {"reno", "bbr"}
