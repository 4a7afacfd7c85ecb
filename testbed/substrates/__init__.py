"""Places to run: each provides a Linux, in which `testbed.inside` does the same thing.

A substrate is a module with

``check(plan) -> None``
    raises `MachineError` if this machine cannot run it, with what would help;
``run(plan, on_event, timeout_s) -> bytes``
    carries the plan in, hands every event out, returns the run directory as a tar archive.
"""
