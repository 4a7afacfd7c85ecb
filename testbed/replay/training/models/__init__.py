"""Models that learn, one file each (`testbed.replay.training`)."""
