"""A run as data: its plan, its tables, how they are stored and read."""

from testbed.core.runs.upgrade import VERSION, upgrade

__all__ = ["VERSION", "upgrade"]
