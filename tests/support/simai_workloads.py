"""Workload text of SimAI, written by hand after its format."""

from __future__ import annotations

HEADER = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 1 ga: 1 all_gpus: 8 checkpoints: 0 checkpoint_initiates: 0"
ROWS = (
    "grads -1 1 NONE 0 1 NONE 0 1 REDUCESCATTER 8000000 100",
    "attention -1 2000000 ALLREDUCE 1000000 1500000 ALLREDUCE 1000000 500000 NONE 0 100",
    "experts -1 3000000 ALLTOALL_EP 600000 4000000 ALLTOALL_EP 600000 1000000 ALLREDUCE_DP_EP 2000000 100",
)


def workload(header: str = HEADER, rows: tuple[str, ...] = ROWS) -> str:
    return "\n".join([header, str(len(rows)), *rows]) + "\n"
