"""Background traffic: what its kinds are, how large its flows are, and when they begin. Nothing here touches a kernel."""
