"""From what was asked to the runs that answer it; touches no kernel."""

from testbed.planning.plan import Scenario, plans, replan, resolve

__all__ = ["Scenario", "plans", "replan", "resolve"]
