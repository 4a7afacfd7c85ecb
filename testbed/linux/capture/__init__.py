"""Packets of links and hosts: sockets with a ring that the kernel fills (`packet_ring`), copies of what enters a queue (`mirror`), the
process that empties the rings (`recorder`), its files (`pcapng`), and all of a run's (`session`)."""
