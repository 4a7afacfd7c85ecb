"""Models that learn, one file each (`workloads.learning`)."""
