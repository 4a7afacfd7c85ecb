"""A run as data: its plan, its tables, how they are stored and read."""

from testbed.core.runs.format_version import VERSION, check_version

__all__ = ["VERSION", "check_version"]
