"""Resolve a spec to plans, one for each run; no kernel is needed."""

from testbed.planning.plan import Scenario, plans, replan, resolve

__all__ = ["Scenario", "plans", "replan", "resolve"]
