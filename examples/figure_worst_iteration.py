"""A figure: the longest iteration of each system, from an experiment named worst-iteration.

mltcp run --name worst-iteration --on flow && mltcp figures results --figure ./figure_worst_iteration.py
"""

from pathlib import Path

import pandas as pd

from testbed.report import drawing, style
from testbed.report.study import Study

ID = "worst-iteration"
TITLE = "The longest iteration of each system"
TEXT = "Bars: the longest iteration over all jobs and seeds, in seconds."


def draw(study: Study, out: Path) -> list[Path]:
    rows = pd.DataFrame({"system": run.system, "worst_s": run.times.max().max()} for run in study.runs)
    figure, axes = style.new_figure(1, 1)
    axes[0, 0].bar(rows["system"], rows["worst_s"])
    axes[0, 0].set_ylabel("longest iteration (s)")
    return drawing.save(figure, rows, out, ID)
