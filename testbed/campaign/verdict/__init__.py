"""Can this run be trusted? Each invariant of docs/reference/invariants.md: value, limits, status.

An invariant that could not be evaluated is listed as such with the reason, never as passed.
"""

from __future__ import annotations

from testbed.campaign.verdict import datagrams, disturbed, jobs, links, machine, tcp, twin
from testbed.campaign.verdict.invariant import Case, Invariant, above, below, by_construction
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.verdict import Verdict, worst

__all__ = ["INVARIANTS", "Case", "judge"]

INVARIANTS = (
    Invariant("I1", "settings read back as applied", machine.settings, note="a mismatch stops the run"),
    Invariant(
        "I2", "capacity of the unshaped path ÷ needed rate", machine.capacity, below(3, 1.5), applies=by_construction
    ),
    Invariant(
        "I3", "bytes above rate × time + bucket, in any interval", links.excess, above(0, 0), applies=links.exact_clock
    ),
    Invariant(
        "I3", "excess over the shaped rate in 100 ms (99th percentile)", links.faster, above(0.03, 0.10),
        applies=links.short_queues,
    ),
    Invariant(
        "I3", "deviation from the shaped rate in busy 100 ms (median)", links.typically_off, above(0.01, 0.03),
        applies=links.queue_stays,
    ),
    Invariant("I3", "deviation from the shaped rate in busy 100 ms (maximum)", links.at_worst_off, links.worst_limits, applies=links.one_queue),
    Invariant(
        "I4", "fraction of queued time in which the bottleneck sends at its rate", links.work_conservation,
        below(0.98, 0.95), applies=links.one_busy_queue,
    ),
    Invariant(
        "I5", "fraction of packets lost where none should be", links.lost, above(0, 1e-3), applies=links.no_link_fails
    ),
    Invariant(
        "I6", "delay of a phase ÷ compute time (99th percentile)", jobs.lateness, above(0.02, 0.05)
    ),
    Invariant(
        "I7", "load of the busiest core (95th percentile of seconds)", machine.busiest_core, machine.core_limits,
        applies=by_construction,
    ),
    Invariant(
        "I7", "CPU time stolen by the hypervisor (95th percentile)", machine.stolen, machine.steal_limits, applies=by_construction
    ),
    Invariant(
        "I8", "deviation of the idle RTT ÷ RTT with a full buffer", links.base_rtt, above(0.20, 0.50)
    ),
    Invariant("I9", "iterations whose bytes differ from the trace's", jobs.other_bytes, above(0, 0), of_model=True),
    Invariant("I10", "repeatability over seeds", jobs.repeatability),
    Invariant("I11", "isolated iteration ÷ ideal", jobs.lone, above(1.01, 1.05), applies=jobs.exact_alone, of_model=True),
    Invariant(
        "I12", "drift of the monotonic against the wall clock, in s", machine.drift, above(1e-3, 1.0), applies=by_construction
    ),
    Invariant("I13", "skipped eBPF calls, per job and second", machine.skipped_calls, above(0.2, 2.0)),
    Invariant("I14", "paths follow from the seed: 1, else 0", links.seeded, below(1), applies=links.equal_paths, of_model=True),
    Invariant("I15", "events that did not happen", links.missed, above(0), applies=links.changes, of_model=True),
    Invariant(
        "I16", "fraction of steady-state communication time with MLTCP active (lowest job)", tcp.in_force, below(0.95),
        applies=tcp.runs_mltcp,
    ),
    Invariant("I17", "fraction of sending time limited by a receive window or send buffer (highest job)", tcp.limited, above(0.01)),
    Invariant("I18", "retransmission timeouts", tcp.count("TCPTimeouts")),
    Invariant("I18", "tail loss probes", tcp.count("TCPLossProbes")),
    Invariant("I18", "spurious timeouts", tcp.count("TCPSpuriousRTOs")),
    Invariant("I18", "packets dropped by hosts' own queues", tcp.own_drops),
    Invariant("I19", "fraction of packets dropped by receivers", tcp.receiver_drops, above(0, 1e-3)),
    Invariant("I20", "slowest host link ÷ slowest bottleneck", links.edges),
    Invariant(
        "I21", "fraction of iterations disturbed by the machine", disturbed.disturbed_share, above(None, 0.20),
        applies=disturbed.recorded,
    ),
    Invariant(
        "I21", "change of the mean iteration without them", disturbed.moved, above(0.02), applies=disturbed.recorded
    ),
    Invariant("I22", "jobs that failed", jobs.failures, above(0), applies=jobs.holds_gpus),
    Invariant(
        "I23", "within the simulator's validated range: 1, else 0", twin.compared, below(1), applies=twin.computed, of_model=True
    ),
    Invariant("I24", "datagrams dropped by hosts", datagrams.dropped, above(0), applies=datagrams.sent),
    Invariant(
        "I24", "packets to one peer at one instant (maximum)", datagrams.burst, datagrams.burst_limits, applies=datagrams.sent
    ),
    Invariant("I25", "commands typed in the run's shell", machine.typed, above(0), applies=machine.has_shell),
)  # fmt: skip


def judge(case: Case) -> Verdict:
    """The verdict on a run: the worst of its invariants (docs/reference/invariants.md)."""
    rows = tuple(invariant.judge(case) for invariant in INVARIANTS)
    return Verdict(
        VERSION, worst(["valid", *(row.status for row in rows if row.status in ("suspect", "invalid"))]), rows
    )
