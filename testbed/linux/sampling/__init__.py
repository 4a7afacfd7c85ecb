"""What is measured beside a run: queues, flows, hosts, the machine itself."""
