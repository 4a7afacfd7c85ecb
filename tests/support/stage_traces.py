"""Traces of all ranks with work in place of times, as STAGE writes them: made by hand after its documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from tests.support.profiles import Chakra

WEIGHTS, ACTIVATION, SHARD = 4_000_000, 1_000_000, 250_000


def stage(folder: Path, form: str = "et") -> Path:
    """Tensor × data × pipeline parallel of 2 × 2 × 2, as STAGE writes it: groups are numbered, each with its ranks in a file."""
    folder.mkdir(exist_ok=True)
    groups = {"1": [0, 1], "2": [2, 3], "3": [4, 5], "4": [6, 7], "5": [0, 2], "6": [1, 3], "7": [4, 6], "8": [5, 7]}
    (folder / "comm_group.json").write_text(json.dumps(groups))
    for rank in range(8):
        first = rank < 4
        tp, dp = str(1 + rank // 2), str(5 + rank % 2 + 2 * (rank // 4))
        made = Chakra()
        if first:
            gathered = made.collective(SHARD, type=2, pg_name=tp, involved_dim=[True, True])
            forward = made.work(2 * 10**12, 10**9, gathered)
            made.send(ACTIVATION, rank + 4, forward, tag=7)
            error = made.recv(ACTIVATION, rank + 4, tag=8)
            backward = made.work(4 * 10**12, 2 * 10**9, forward, error)
        else:
            came = made.recv(ACTIVATION, rank - 4, tag=7)
            backward = made.work(6 * 10**12, 3 * 10**9, came)
            made.send(ACTIVATION, rank - 4, backward, tag=8)
        made.collective(WEIGHTS, made.node("label", 4, backward), pg_name=dp, comm_priority=1)
        if form == "jsonizer":
            (folder / f"llm.{rank}.json").write_text("".join(map(jsonized, made.messages)))
        elif form == "et":
            made.write(folder, f"llm.{rank}.et")
        else:
            (folder / f"llm.{rank}.json").write_text(
                json.dumps({"nodes": [as_json(node) for node in made.messages[1:]]})
            )
    return folder


def jsonized(message: Any) -> str:
    """A message as chakra_jsonizer writes it."""
    raw = MessageToDict(message)
    names = {4: "COMP_NODE", 5: "COMM_SEND_NODE", 6: "COMM_RECV_NODE", 7: "COMM_COLL_NODE"}
    return json.dumps({**raw, "type": names[raw["type"]]} if "type" in raw else raw, indent=2)


def as_json(node: Any) -> dict[str, Any]:
    """A node in STAGE's JSON form."""
    names = {4: "comp_node", 5: "comm_send_node", 6: "comm_recv_node", 7: "coll_comm_node"}
    values = {one.name: getattr(one, one.WhichOneof("value")) for one in node.attr if not one.HasField("bool_list")}
    found = {
        key: value for key, value in values.items() if key not in ("pg_name", "comm_type", "is_cpu_op", "comm_priority")
    }
    if node.type == 7:
        found |= {
            "comm_type": {0: "ALL_REDUCE", 2: "ALL_GATHER"}[values["comm_type"]],
            "comm_group": int(values["pg_name"]),
        }
    return {
        "id": node.id,
        "name": node.name,
        "node_type": names[node.type],
        "data_deps": list(node.data_deps),
        "ctrl_deps": [],
        **found,
    }
