"""Formats of run directories: one number for all files of a run, and what older ones lack.

What an older manifest does not say is filled with what held in the release that wrote it, written down here: names that
have another meaning today, or defaults that change, must not change what an old run says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.core.errors import TestbedError

VERSION = 2

# Version 1 knew its congestion controls by name alone.
_LEARNS_1 = {"learns": True, "state": "mltcp_flows"}
_DCQCN_1 = {"needs_marks": True, "frame_by_frame": True, "paced": True}
_TREATMENTS_1: Mapping[str, tuple[str, dict[str, Any]]] = {
    "mltcp_reno": ("reno", _LEARNS_1),
    "mltcp_cubic": ("cubic", _LEARNS_1),
    "mltcp_dctcp": ("dctcp", {"needs_marks": True, **_LEARNS_1}),
    "mltcp_dcqcn": ("dcqcn", {**_DCQCN_1, **_LEARNS_1}),
}
_TRAITS_1: Mapping[str, dict[str, Any]] = {
    "dctcp": {"needs_marks": True},
    "dcqcn": _DCQCN_1,
    **{name: {"may_leave_idle": True} for name in ("bbr", "vegas", "nv", "lp", "cdg")},
}
_CLOCKS_1 = {"uml": "virtual"}  # every other place had a real one
_KNOWS_1 = {
    "cassini": ("all jobs, their places", True), "priority": ("bytes to send; bands in switches", True), "unfair": ("who is to win", False),
}  # fmt: skip
# Constants of the programs of version 1, for those that a run did not give: a plan held what was given alone.
_F_1 = {"slope": 1792, "intercept": 256, "curve": 0, "gap_factor": 512, "first_gap_us": 1000, "total_bytes": 0}
_RATES_1 = {
    "line_rate": 50_000, "r_ai": 40_000, "r_hai": 400_000, "g": 4, "cnp_interval": 50, "alpha_timer": 55, "rate_timer": 55,
    "fast_recovery": 5, "byte_counter": 10_000_000,
}  # fmt: skip
_CONSTANTS_1: Mapping[str, dict[str, int]] = {
    **dict.fromkeys(("mltcp_reno", "mltcp_cubic", "mltcp_dctcp"), _F_1),
    "dcqcn": _RATES_1,
    "mltcp_dcqcn": {**_F_1, "slope": 1093, "intercept": 273, **_RATES_1},
}
# What version 1 did not know, and so did not do.
_MANIFEST_1: dict[str, Any] = {
    "asked": None,
    "attempts": [],
    "crossings": None,
    "disturbances": None,
    "scheduler": None,
    "transports": None,
}
_MEASURED_1: dict[str, Any] = {"datagrams": None, "period": None, "senders": None, "tcp": None}
_PLAN_1: dict[str, Any] = {
    "crossed": False, "messages": "rounds", "nics": [], "paths": 1, "paths_hashed": False, "scheduler": None, "servers": {}, "stop_when_periodic": 0,
    "sender": {
        "nic_bps": None, "queue": "fifo", "queue_bytes": 0, "send_buffer_bytes": None, "slow_start_after_idle": False,
        "small_queue_bytes": None, "bands": 1,
    },
}  # fmt: skip
_LINK_1: dict[str, Any] = {"control": False, "selective": []}
_WIRE_1: dict[str, Any] = {"burst": None}
_JOB_1: dict[str, Any] = {
    "exclusive": [], "falls": False, "fewest_s": None, "life": None, "partition": None, "trains": None, "transport": "tcp", "window": None,
}  # fmt: skip
_OPERATION_1: dict[str, Any] = {
    "algorithm": "", "bytes": None, "duration_ns": None, "importance": [], "layer": 0, "ranks": None,
}  # fmt: skip
_NO_TRAITS_1: dict[str, Any] = {
    "needs_marks": False, "frame_by_frame": False, "paced": False, "learns": False, "may_leave_idle": False, "state": None,
}  # fmt: skip


class NewerError(TestbedError):
    """A format of a newer release."""


def upgrade(data: dict[str, Any]) -> dict[str, Any]:
    """What a file of a run directory (manifest, verdict, summary) holds, in today's format.

    Raises `NewerError`, or `ValueError` for what is of no version.
    """
    version = data["version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError("it names no format version")
    if version > VERSION:
        raise NewerError(
            f"is of a format version this program does not know: {version}, and it knows {VERSION} and older"
        )
    if version == 1:
        data = _from_1(data)
    return {**data, "version": VERSION}


def _from_1(data: dict[str, Any]) -> dict[str, Any]:
    if "plan" in data:
        return _manifest_from_1(data)
    if "results" in data:
        return _summary_from_1(data)
    if "invariants" in data:
        return {**data, "invariants": [_invariant_from_1(row) for row in data["invariants"]]}
    return data


def _manifest_from_1(data: dict[str, Any]) -> dict[str, Any]:
    plan = dict(data["plan"])
    control = plan.pop("cc")
    jobs = [_job_plan_from_1(job) for job in plan["jobs"]]
    plan = _PLAN_1 | plan
    plan |= {
        "version": VERSION, "jobs": jobs, "system": _system_from_1(control, [job["cc"] for job in jobs]),
        "link": _LINK_1 | plan["link"], "bottlenecks": {name: _LINK_1 | link for name, link in plan["bottlenecks"].items()},
        "wires": {name: _WIRE_1 | wire for name, wire in plan["wires"].items()},
    }  # fmt: skip
    given = {job["cc"]["spec"]: job["cc"] for job in jobs}
    loaded = [
        {**row, "constants": {**_CONSTANTS_1.get(used["name"], {}), **used["constants"]}}
        for row in data.get("congestion_controls", ())
        if (used := given.get(row["spec"])) is not None
    ]
    measured = _MEASURED_1 | data["measured"]
    return {
        **_MANIFEST_1,
        **data,
        "plan": plan,
        "measured": measured,
        "congestion_controls": loaded,
        "clock": _clock_1(data),
    }


def _job_plan_from_1(job: dict[str, Any]) -> dict[str, Any]:
    operations = [_OPERATION_1 | operation for operation in job["operations"]]
    return {**_JOB_1, **job, "operations": operations, "cc": _control_from_1(job["cc"])}


def _control_from_1(control: dict[str, Any]) -> dict[str, Any]:
    name, control = control["name"], {**control, "preset": None}
    if control.get("source") is not None:
        return {**control, "role": "treatment", "base": None, "traits": _NO_TRAITS_1}
    if name in _TREATMENTS_1:
        base, traits = _TREATMENTS_1[name]
        return {**control, "role": "treatment", "base": base, "traits": _NO_TRAITS_1 | traits}
    return {**control, "role": "baseline", "base": None, "traits": _NO_TRAITS_1 | _TRAITS_1.get(name, {})}


def _system_from_1(control: dict[str, Any], used: list[dict[str, Any]]) -> dict[str, Any]:
    label, name = control["spec"], control["name"]
    system = {"label": label, "name": name, "transport": "tcp", "flow_scheduler": None, "knows": "", "central": False}
    role = _role_1(label)
    if role == "reference":
        knows, central = _KNOWS_1.get(label.partition(":")[0], ("", False))
        return {**system, "role": role, "congestion": [], "flow_scheduler": label, "knows": knows, "central": central}
    turns = list({each["spec"]: each for each in used}.values())
    return {**system, "role": role, "congestion": turns}


def _clock_1(data: dict[str, Any]) -> str:
    return _CLOCKS_1.get(data.get("substrate", ""), "real")


def _summary_from_1(data: dict[str, Any]) -> dict[str, Any]:
    base = next(row for row in data["results"] if row["cc"] == data["baseline"])
    results = []
    for row in data["results"]:
        jobs = [_job_from_1(job, before) for job, before in zip(row["per_job"], base["per_job"], strict=True)]
        results.append({**_renamed(row), "role": _role_1(row["cc"]), "per_job": jobs, "answer": None})
    return {**data, "results": results, "needs": None, "clock": _clock_1(data)}


def _job_from_1(job: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """With what it gains over the same job under the baseline, which was not said."""
    gains = {f"speedup_{what}": base[f"{what}_s"] / job[f"{what}_s"] for what in ("mean", "p99")}
    learns = job["cc"].partition(":")[0] in _TREATMENTS_1
    return {**_renamed(job), "learns": learns, **gains, "speedup_mean_ci95": None, "speedup_p99_ci95": None}


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    return {"system" if key == "cc" else key: value for key, value in row.items()}


def _invariant_from_1(row: dict[str, Any]) -> dict[str, Any]:
    """I1 said in words that it has no limits."""
    return {**row, "limit": None} if isinstance(row["limit"], str) else row


def _role_1(label: str) -> str:
    """Of what was compared, as typed."""
    words = label.split("+")
    if label.partition(":")[0] in _KNOWS_1:
        return "reference"
    treats = any(name.endswith(".c") or name in _TREATMENTS_1 for name in (word.partition(":")[0] for word in words))
    return "treatment" if treats else "baseline"
