"""Packet capture on links and hosts.

`packet_ring` opens sockets with a ring that the kernel fills. `mirror` copies packets that enter a queue. `recorder` is
the process that empties the rings, `pcapng` writes its files, and `session` manages all captures of a run.
"""
