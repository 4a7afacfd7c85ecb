"""A run in formats of other tools, one file a format.

`timeline` is what happened in a run: iterations, computes and exchanges of each rank. The formats are made of that and of the run's
tables. No module here writes a file or starts a run: the command ``mltcp export`` writes what they return.
"""
