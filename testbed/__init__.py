"""Runs one experiment: spec → network → jobs → measurements → run directory."""

__version__ = "0.1.0"
