"""Congestion controls on their way into a kernel: modules and eBPF programs."""
