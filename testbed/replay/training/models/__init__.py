"""Trainable models, one file each (`testbed.replay.training`)."""
