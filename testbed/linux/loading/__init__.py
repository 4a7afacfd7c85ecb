"""Load congestion controls into a kernel: modules and eBPF programs."""
