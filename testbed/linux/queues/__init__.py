"""What a link does to packets: shapers, delay and loss, marking."""
