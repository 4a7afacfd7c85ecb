"""Traces whose ranks differ, or have several groups, as the tests make them."""

from __future__ import annotations

from typing import Any

MICRO_BATCHES = 2
TENSOR, ACTIVATION, GRADIENT = 200_000, 100_000, 1_000_000


def pipeline(micro_batches: int = MICRO_BATCHES) -> dict[str, Any]:
    """TP × PP × DP of 2 × 2 × 2 ranks, tensor parallel inside servers."""
    first: list[dict[str, Any]] = []
    last: list[dict[str, Any]] = []
    for number in range(micro_batches):
        first += [
            {"id": f"forward{number}", "kind": "compute", "duration": "2ms"},
            {"id": f"tp{number}", "kind": "all_reduce", "group": "tp", "bytes": TENSOR, "after": [f"forward{number}"]},
            {"id": f"send{number}", "kind": "send", "group": "pp", "peer": "+1", "bytes": ACTIVATION, "tag": number, "after": [f"tp{number}"]},
            {"id": f"gradient{number}", "kind": "recv", "group": "pp", "peer": "+1", "bytes": "100kB"},
            {"id": f"backward{number}", "kind": "compute", "duration": "4ms", "after": [f"gradient{number}"]},
        ]  # fmt: skip
        last += [
            {"id": f"activation{number}", "kind": "recv", "group": "pp", "peer": "-1", "bytes": "100kB", "tag": number},
            {"id": f"both{number}", "kind": "compute", "duration": "6ms", "after": [f"activation{number}"]},
            {"id": f"tp{number}", "kind": "all_reduce", "group": "tp", "bytes": TENSOR, "after": [f"both{number}"]},
            {"id": f"back{number}", "kind": "send", "group": "pp", "peer": "-1", "bytes": ACTIVATION, "after": [f"tp{number}"]},
        ]  # fmt: skip
    gradients = {"id": "gradients", "kind": "all_reduce", "group": "dp", "bytes": GRADIENT}
    first.append(gradients | {"after": [f"backward{micro_batches - 1}"]})
    last.append(gradients | {"after": [f"tp{micro_batches - 1}"]})
    return {
        "version": 2, "name": "3d",
        "groups": {"tp": [[0, 1], [2, 3], [4, 5], [6, 7]], "dp": [[0, 2], [1, 3], [4, 6], [5, 7]], "pp": [[0, 4], [1, 5], [2, 6], [3, 7]]},
        "roles": [{"name": "first", "ranks": [0, 1, 2, 3], "operations": first}, {"name": "last", "ranks": [4, 5, 6, 7], "operations": last}],
        "placement": {"inside": ["tp"]},
    }  # fmt: skip


# What each rank of an expert-parallel group sends to each other: rank 3 only receives.
EXPERTS = ((70_000, 30_000, 0, 50_000), (10_000, 20_000, 90_000, 80_000), (1, 2_000, 3_000, 400_000), (0, 0, 0, 5_000))
PARTS = (10_000, 0, 30_001, 7)


def experts() -> dict[str, Any]:
    """A mixture of experts: uneven all-to-all in one group, uneven gathering and gradients in another with the same ranks."""
    return {
        "version": 2, "name": "moe", "groups": {"ep": [[0, 1, 2, 3]], "dp": [[0, 1, 2, 3]]},
        "roles": [
            {"name": f"rank{rank}", "ranks": [rank], "operations": [
                {"id": "router", "kind": "compute", "duration": "3ms"},
                {"id": "dispatch", "kind": "all_to_all", "group": "ep", "splits": EXPERTS[rank], "after": ["router"]},
                {"id": "expert", "kind": "compute", "duration": f"{2 + rank}ms", "after": ["dispatch"]},
                {"id": "gather", "kind": "all_gather", "group": "dp", "splits": PARTS, "after": ["router"]},
                {"id": "scatter", "kind": "reduce_scatter", "group": "dp", "splits": PARTS, "after": ["expert"]},
                {"id": "gradients", "kind": "all_reduce", "group": "dp", "bytes": "400kB", "after": ["expert"]},
            ]}
            for rank in range(4)
        ],
    }  # fmt: skip


def overlapping(first: str = "g1@-1", second: str = "g0@-1") -> dict[str, Any]:
    """Two layers on two ranks, each averaged in a group of its own; the layers of the next forward pass wait for ``first`` and ``second``."""
    computes = {"f0": [first], "f1": [second], "b1": [], "b0": []}
    return {
        "version": 2, "name": "overlapping", "groups": {"one": [[0, 1]], "other": [[0, 1]]},
        "operations": [
            *({"id": name, "kind": "compute", "duration": "5ms", "after": after} for name, after in computes.items()),
            {"id": "g1", "kind": "all_reduce", "group": "one", "bytes": 200_000, "after": ["b1"]},
            {"id": "g0", "kind": "all_reduce", "group": "other", "bytes": 200_000, "after": ["b0"]},
        ],
    }  # fmt: skip


def unequal() -> dict[str, Any]:
    """Data parallel among two ranks, and among three: those have more to send, and are slower."""
    return {
        "version": 2, "name": "unequal", "native_rate": "10gbit", "groups": {"dp": [[0, 1], [2, 3, 4]]},
        "operations": [
            {"id": "forward", "kind": "compute", "duration": "1ms"},
            {"id": "gradients", "kind": "all_reduce", "group": "dp", "bytes": 1_000_000, "after": ["forward"]},
        ],
    }  # fmt: skip


def rails(ranks: int = 4, gradient: int = 4_000_000) -> dict[str, Any]:
    """Two servers of so many ranks, tensor parallel inside; each rank averages its gradients with one of the other server."""
    return {
        "version": 2, "name": "rails",
        "groups": {"tp": [list(range(ranks)), list(range(ranks, 2 * ranks))], "dp": [[rank, rank + ranks] for rank in range(ranks)]},
        "operations": [
            {"id": "forward", "kind": "compute", "duration": "2ms"},
            {"id": "activations", "kind": "all_reduce", "group": "tp", "bytes": "1MB", "after": ["forward"]},
            {"id": "backward", "kind": "compute", "duration": "4ms", "after": ["activations"]},
            {"id": "gradients", "kind": "all_reduce", "group": "dp", "bytes": gradient, "after": ["backward"]},
        ],
        "placement": {"inside": ["tp"]},
    }  # fmt: skip
