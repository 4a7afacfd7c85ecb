"""Congestion controls by name: what they are called, what they take, the curve F. No system call."""
