"""What runs in the hosts: replaying workers, and real programs."""
