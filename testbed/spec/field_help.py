"""What every field of an experiment means: the help of its flag, and its description in the schema of the files."""

from __future__ import annotations

from typing import Any

import msgspec

from testbed.core.units import Quantity, Written
from testbed.replay import training
from testbed.spec import Event, LinkSpec, Spec
from testbed.spec.aliases import ALIASES
from testbed.spec.job import Job
from testbed.spec.system_tables import SystemTable

# In brackets what holds if nothing is said.
SPEC = {
    "name": "of the results folder",
    "topo": "topology, or ./mine.py; with arguments as in Mininet: dumbbell,4 (dumbbell)",
    "scheduler": "which host runs which worker: spread over the edges, packed, random, or ./mine.toml; several are crossed with the systems (spread)",
    "jobs": "how many (2)",
    "workers": "of each job (2)",
    "trace": "what they replay: a name of the library, or ./mine.json",
    "compute": "a synthetic job's compute time, with --bytes",
    "bytes": "a synthetic job's bytes: sent one way over the bottleneck, or the tensor of its collective (an all-reduce with more "
    "than two workers)",
    "buckets": "in which a synthetic job exchanges its tensor, beside its backward pass (1: after it)",
    "collective": "how all-reduces are carried out: ring, tree, parameter_server, … (ring)",
    "channels": "connections per flow (1)",
    "window": "bytes of a worker on their way at a time, front layers first: exchanges are in flight together (one after the other)",
    "partition": "of a message in that window, at most (as large as it is)",
    "train": "what they train for real, by a parameter server, or in a ring (--collective ring): "
    f"{', '.join(training.names())}; with :fill=contributors or feedback what becomes of holes (bytes nobody looks at)",
    "job": "a job of its own, once for each: resnet50,workers=4,offset=2s; synthetic,compute=1s,bytes=5MB; "
    'ddp:resnet18 (real PyTorch, on `host`); cmd:"python train.py"',
    "job_order": "in which jobs are numbered, and asked by a job scheduler: as they are listed, or drawn by the seed, another for each (listed)",
    "system": "what is compared: one or more; the first is the baseline (reno mltcp_reno); or a transport: ltp, mlt, dlcp, reno:early_close=0.8 (docs/transports.md); or schedulers: cassini, priority, unfair "
    "(docs/baselines.md)",
    "preset": "of every MLTCP that names none (docs/congestion-controls.md) (recommended)",
    "iterations": "of every job (30)",
    "seed": "the first (1)",
    "seeds": "how many (1; intervals from 3)",
    "isolated_runs": "runs of single jobs, for comparison: auto (each kind of job once, under the baseline; under another system only where a "
    "lone job's time can depend on it), each (kind, system and seed), first (seed only), or none but those that a flow scheduler needs (auto)",
    "rate": "of the bottleneck, both directions (500mbit)",
    "buffer": "of the bottleneck, as time, size or frames: 1ms, 500kB, 200p (200p)",
    "mtu": "in bytes (1500)",
    "link": "what single links have of their own, by their names: s1-s2",
    "event": "what happens to bottlenecks while jobs run, once for each event",
    "acks": "pure ACKs in a band of their own at the bottleneck",
    "ecn": "mark before dropping, by RED: on (from a fifth of the buffer), a threshold (65kB, 200us, 40p), MIN,MAX,PROBABILITY, "
    "or off (on)",
    "bands": "in strict priority by class selector, with one above them for control: how many of data, or 4,drop: they drop what cannot be "
    "marked, 4,solved: from thresholds as MLT's appendix has them; 1,apart: one below that of control (1: one queue)",
    "delay": "one-way, added on the last hop of every path (0ms)",
    "jitter": "delay varies by as much, evenly; packets may overtake (0ms)",
    "loss": "share of packets lost at random on the last hop (0%); 80%/0.1%/5%: in bursts, which begin behind a packet with 0.1% and end with 5%",
    "corrupt": "share of packets with a bit flipped at random on the last hop (0%)",
    "offsets": "starts: overlapped (0-5 % of an iteration), uniform, or 0ms,50ms,…",
    "noise": "of the compute time: 5%, lognormal:5%, stragglers:1% (what the trace was measured with)",
    "rto_min": "minimum retransmission timeout, 1ms to 200ms (the kernel's 200ms)",
    "nic": "of every host's interface: a rate, a share of the links' (100%), or inf: as fast as memory (100%)",
    "host_queue": "before that interface: fq (which paces), pfifo_fast:20ms (a time or a size), or none: it never drops "
    "(pfifo_fast:20ms)",
    "sndbuf": "of a socket, at most (more than its path holds)",
    "slow_start_after_idle": "whether a window shrinks while nothing is sent, as Linux has it by default (0)",
    "represents_rate": "the rate for which this one stands: what a host limits in bytes is scaled with it (as it is)",
    "intra_rate": "of exchanges inside a server, of jobs that ask for GPUs (infinitely fast)",
    "messages": "of transports that may lose, a row a round and peer, or full: a row a message (rounds)",
    "stop_when_periodic": "under virtual time, without noise: end a run once so many of all its jobs' iterations are alike to the nanosecond, and fill in the rest "
    "(0: never)",
    "sample": "interval of link and flow samples (10ms)",
    "on": "where to run: uml (user-mode Linux, under virtual time), host (this machine's kernel; root), flow (no kernel: the "
    "flow-level twin computes it), vagrant, "
    "ssh:[USER@]HOST[:PORT] (auto: uml where it can run it, else host, saying why)",
    "wall_limit": "end a run after so much wall time, whatever happens (else: when nothing moves any more)",
}
LINK = {
    "rate": "of a bottleneck, or a share of the experiment's: 50%",
    "buffer": "of a bottleneck, as time, size or frames",
    "ecn": "of a bottleneck, as the experiment's",
    "delay": "one-way, of a link that is no bottleneck",
    "jitter": "by which that delay varies, evenly",
    "loss": "share of packets lost at random, or in bursts: 80%/0.1%/5%",
    "corrupt": "share of packets with a bit flipped at random",
    "oneway": "the last four hold for what the first of its two names sends, not back",
}
EVENT = {
    "at": "after the start",
    "link": "a bottleneck, both directions: s1-s2",
    "rate": "it is this fast from then on; or a share of what it is at first: 50%",
    "state": "it fails, or works again",
}
JOB = {
    "trace": "it replays this one: a name of the library, or ./mine.json",
    "compute": "or it computes so long and then sends: a synthetic job",
    "bytes": "what a synthetic job sends",
    "buckets": "in which it exchanges them, beside its backward pass",
    "train": "its messages are this model's gradients and parameters",
    "ddp": "or it trains this model for real (PyTorch)",
    "cmd": "or it runs this program on every worker",
    "workers": "how many",
    "collective": "how operations of its kind are carried out",
    "channels": "connections per flow",
    "window": "bytes of a worker on their way at a time, front layers first",
    "partition": "of a message in that window, at most",
    "offset": "it arrives so long after the start",
    "leave": "it departs (its workers are killed) so long after the start",
    "noise": "of the compute time",
    "iterations": "how many count; it goes on until every job has its own",
    "cc": "whatever the others use",
    "transport": "as the system says; with `cc` TCP",
    "gpus": "that a job scheduler gives it, on servers of its choice; it waits for them, and frees them after its iterations",
}
OF: dict[type[msgspec.Struct], dict[str, str]] = {Spec: SPEC, LinkSpec: LINK, Event: EVENT, Job: JOB}


def schema() -> dict[str, Any]:
    """A JSON schema of experiment files, for editors."""

    def quantity(kind: type[Quantity | Written]) -> dict[str, Any]:
        if issubclass(kind, Written):
            return {"type": "string"}
        return {"type": "string", "description": f"a {kind.noun}, with its unit: {kind.examples}"}

    found = msgspec.json.schema(Spec, schema_hook=quantity)
    for field in msgspec.structs.fields(Spec):  # msgspec tells no defaults of types that it does not know
        if callable(field.default_factory) and isinstance(default := field.default_factory(), Quantity | Written):
            found["$defs"]["Spec"]["properties"][field.name]["default"] = str(getattr(default, "exact", default))
    for kind, descriptions in OF.items():
        fields = found["$defs"][kind.__name__]["properties"]
        for name, description in descriptions.items():
            fields[name] = {**fields[name], "description": description}
    properties = found["$defs"]["Spec"]["properties"]
    properties["job"] = {
        "description": SPEC["job"],
        "type": "array",
        "items": {
            "anyOf": [{"$ref": "#/$defs/Job"}, {"type": "string", "description": "as --job has it: s2,workers=4"}]
        },
    }
    found["$defs"] |= msgspec.json.schema(SystemTable)["$defs"]
    properties["system"] = {
        **properties["system"],
        "items": {
            "anyOf": [
                {"$ref": "#/$defs/SystemTable"},
                {"type": "string", "description": "as --system has it: ltp:fraction=0.8,label=LTP"},
            ]
        },
    }
    properties |= {alias: properties[name] for alias, name in ALIASES.items()}
    properties["base"] = {"type": "string", "description": "a file that this one stands on"}
    properties["sweep"] = {
        "type": "object",
        "description": "a list of values for each path: every combination is an experiment; below `zip` lists are taken together",
        "additionalProperties": {"anyOf": [{"type": "array"}, {"type": "object"}]},
    }
    properties |= {
        name: {
            "type": "object",
            "description": f"fields that take the place of those above {when}",
            "properties": {key: value for key, value in properties.items() if key not in ("name", "on", "base")},
            "additionalProperties": False,
        }
        for name, when in (
            ("quick", "with --quick"),
            ("realtime", "wherever the clock is a real one (host, vagrant, ssh)"),
        )
    }
    properties["realtime"]["properties"]["impossible"] = {
        "type": "string",
        "description": "why there is no form of the experiment for a real clock; instead of fields",
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "MLTCP testbed experiment", **found}
