"""What `make reproduce QUICK=1` left before format 2: still there to be compared with, and read as what it was."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pandas as pd

from testbed.core.runs.upgrade import VERSION, upgrade

ROOT = Path(__file__).parents[2]


def test_figures_and_summaries_of_format_1_can_be_read() -> None:
    figures, summaries = 0, 0
    with tarfile.open(ROOT / "tests/data/reproduced-v1.tar.xz") as tar:
        for member in tar.getmembers():
            content = file.read() if (file := tar.extractfile(member)) else b""
            if member.name.endswith(".csv"):
                figures += len(pd.read_csv(io.BytesIO(content))) > 0
            elif member.name.endswith("summary.json"):
                summary = upgrade(json.loads(content))
                assert summary["version"] == VERSION and summary["clock"] == "virtual"
                assert all(row["system"] and row["mean_s"] > 0 for row in summary["results"])
                summaries += 1
    assert figures >= 15 and summaries >= 30
