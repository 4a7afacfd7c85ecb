"""Measurements during a run: queues, flows, hosts, the machine itself."""
