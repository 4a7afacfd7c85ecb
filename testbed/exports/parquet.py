"""Parquet: a file for each table of a run, with the types of its columns. Needs pyarrow (the extra ``parquet``)."""

from __future__ import annotations

import io

from testbed.core.errors import MachineError
from testbed.core.runs.load import Run
from testbed.exports import tables


def files(run: Run) -> dict[str, bytes]:
    """Names and contents; raises `MachineError` without pyarrow."""
    found = {}
    try:
        for name, table in tables.of(run).items():
            buffer = io.BytesIO()
            table.to_parquet(buffer, engine="pyarrow", index=False)
            found[f"{name}.parquet"] = buffer.getvalue()
    except ImportError as error:
        raise MachineError(
            "--parquet needs the package pyarrow, which is not installed. Install it (`pip install 'mltcp-testbed[parquet]'`, in a "
            "checkout `.venv/bin/pip install pyarrow`), or export --csv."
        ) from error
    return found
