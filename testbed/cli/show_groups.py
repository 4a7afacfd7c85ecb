"""Print and draw a trace whose ranks differ, or have several groups: its groups, and each role's operations over time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from testbed.core.terminal import Column, Sheet
from testbed.core.text import shown
from testbed.core.units import Rate, size_text
from testbed.planning.groups import MESSAGES, Grouped, name_of
from testbed.traces import matching
from testbed.traces import trace as traces
from testbed.traces.matching import Exchange
from testbed.traces.trace import ALGORITHMS, Operation, Role, Trace
from testbed.traces.wire_bytes import usual_bytes

MOST_ROLES = 4  # largest number of roles in a drawing
MOST_ROWS = 200  # rows of the table: the first and the last ones of each role
Bar = tuple[str, float, float]


@dataclass(frozen=True)
class View:
    """A trace in isolation: every rank has a separate link, and exchanges inside a server take no time."""

    trace: Trace
    rate: Rate

    @cached_property
    def grouped(self) -> Grouped:
        return Grouped(self.trace, None, 1)

    def _usual(self, one: Exchange) -> bool:
        """Whether it has many ranks, and a formula gives the bytes that each of them sends."""
        return len(one.members) > traces.MOST_BY_ROUNDS and self.grouped.algorithm(one) == ALGORITHMS.get(
            one.first.kind
        )

    def _exchange_s(self, one: Exchange) -> float:
        if self._usual(one):
            return usual_bytes(one.first.kind, one.first.size, len(one.members)) * 8 / self.rate
        return traces.rounds_s(self.grouped.rounds(one), self.rate)

    @cached_property
    def times(self) -> dict[tuple[int, str], tuple[float, float]]:
        """Start and end of every operation, by rank and id."""
        matched = self.trace.matched
        found = matching.times(matched, self.grouped.exchange_s(self._exchange_s, float("inf")))
        return {
            (rank, op.id): own
            for step, every in zip(matched.steps, found, strict=True)
            for rank, op, own in zip(step.ranks, step.operations, every, strict=True)
        }

    @property
    def period_s(self) -> float:
        if self.trace.overlaps:
            return matching.period_s(self.trace.matched, self.grouped.exchange_s(self._exchange_s, float("inf")))
        return max(end for _, end in self.times.values())

    @cached_property
    def sent(self) -> dict[str, Counter[int]]:
        """Bytes over the network, by group and rank."""
        found: dict[str, Counter[int]] = {}
        for one in self.grouped.crossing:
            own = found.setdefault(name_of(one), Counter())
            if self._usual(one):
                own.update(
                    dict.fromkeys(one.members, round(usual_bytes(one.first.kind, one.first.size, len(one.members))))
                )
                continue
            for flows in self.grouped.rounds(one):
                for (source, _), size in flows.items():
                    own[source] += size
        return found

    @cached_property
    def total(self) -> Counter[int]:
        """Bytes over the network, by rank."""
        return sum(self.sent.values(), Counter[int]())

    def groups(self) -> Sheet:
        """A row for each group."""
        columns = [
            Column(name, right=name.endswith("per rank")) for name in ("group", "ranks", "where", "sends per rank")
        ]
        cells = []
        for name in (*self.trace.groups, *([MESSAGES] if MESSAGES in self.sent else [])):
            lists = self.trace.groups.get(name, ())
            own = self.sent.get(name)
            least, most = (min(own.values()), max(own.values())) if own else (0, 0)
            size = size_text(most) if least == most else f"{size_text(least)} to {size_text(most)}"
            sizes = " or ".join(str(count) for count in sorted({len(one) for one in lists}))
            who = f"{len(lists)} × {sizes}" if lists else "pairs"
            inside = lists and all(len({self.grouped.servers[rank] for rank in one}) == 1 for one in lists)
            cells.append([shown(name), who, "server" if inside else "network", size if own else "–"])
        return Sheet(columns, cells)

    def roles(self) -> Sheet:
        """A row for each operation of each role, as its first rank has it."""
        headings = ("role", "operation", "kind", "group", "start (ms)", "takes (ms)", "bytes", "after")
        columns = [Column(heading, right="(ms)" in heading or heading == "bytes") for heading in headings]
        cells = []
        most = max(2, MOST_ROWS // len(self.trace.all_roles))
        for role in self.trace.all_roles:
            rows = role.operations
            left_out = len(rows) - most
            if left_out > 0:
                rows = rows[: most // 2] + rows[-(most // 2) :]
            for number, op in enumerate(rows):
                if left_out > 0 and number == most // 2:
                    cells.append([shown(role.name), f"… {left_out:,} more", *[""] * 6])
                start, end = self.times[role.ranks[0], op.id]
                cells.append([
                    shown(role.name), shown(op.id), op.kind, shown(op.group or ""), f"{start * 1e3:.3f}", f"{(end - start) * 1e3:.3f}",
                    "" if op.computes else f"{op.size:,}", ", ".join(map(shown, op.after[:3])) + (", …" if len(op.after) > 3 else ""),
                ])  # fmt: skip
        skipped = int(len(self.trace.all_roles) == 1)  # the column of its name is constant
        return Sheet(columns[skipped:], [row[skipped:] for row in cells])

    def summary(self) -> str:
        least, most = (min(self.total.values()), max(self.total.values())) if self.total else (0, 0)
        sizes = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        return (
            f"{self.trace.ranks} ranks on {len(set(self.grouped.servers))} servers at {self.rate}: iteration {self.period_s * 1e3:.3f} ms, a "
            f"rank sends {sizes} bytes over the network; noise {self.trace.noise}"
        )

    def draw(self, out: Path) -> None:
        from testbed.traces.drawing import Lane, draw_lanes  # matplotlib takes long to import

        lanes = []
        for role in self.trace.all_roles[:MOST_ROLES]:
            lanes.append(Lane(f"{shown(role.name, 20)}: compute", True, self._bars(role, None)))
            names = dict.fromkeys(_lane(op) for op in role.operations if not op.computes)
            lanes += [Lane(shown(name, 20), False, self._bars(role, name)) for name in names]
        busiest = max(self.total, key=lambda rank: self.total[rank], default=0)
        crossing = {
            (rank, op.id) for one in self.grouped.crossing for rank, op in zip(one.members, one.operations, strict=True)
        }
        spans = _joined([self.times[key] for key in sorted(crossing) if key[0] == busiest], float(self.rate))
        title = f"{shown(self.trace.name)}: one iteration of {self.trace.ranks} ranks at {self.rate} (demand of rank {busiest})"
        draw_lanes(title, lanes, self.period_s, spans, out)

    def _bars(self, role: Role, lane: str | None) -> list[Bar]:
        own = [op for op in role.operations if (op.computes if lane is None else not op.computes and _lane(op) == lane)]
        return [(op.id, *self.times[role.ranks[0], op.id]) for op in own]


def _lane(op: Operation) -> str:
    return op.kind if op.point_to_point else op.group or matching.EVERY_RANK


def _joined(times: list[tuple[float, float]], rate_bps: float) -> list[tuple[float, float, float]]:
    """Concurrent operations share the link."""
    found: list[tuple[float, float, float]] = []
    for start, end in sorted(one for one in times if one[1] > one[0]):
        if found and start <= found[-1][1]:
            first, last, _ = found.pop()
            found.append((first, max(last, end), rate_bps))
        else:
            found.append((start, end, rate_bps))
    return found
