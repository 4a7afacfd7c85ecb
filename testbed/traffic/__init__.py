"""Background traffic: its kinds, flow sizes, and arrival times. No access to a kernel."""
