"""Congestion controls: names, parameters, presets, and the curve F. No system call."""
