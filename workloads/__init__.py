"""Traffic of the jobs: traces, collectives, and the worker that replays them inside a host.

Uses nothing of the other packages; the worker and the collectives use nothing but the
standard library, so that a worker starts fast inside any host.
"""
