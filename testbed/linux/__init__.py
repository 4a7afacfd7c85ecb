"""The only place that touches a kernel: namespaces, netlink, queues, eBPF, participants, samples."""
