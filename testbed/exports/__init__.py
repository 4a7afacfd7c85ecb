"""Convert a run to formats of other tools, one module a format.

`timeline` holds iterations, computes and exchanges of each rank. The formats are made of it and of the run's tables. No
module here writes a file or starts a run: the command ``mltcp export`` writes the returned text.
"""
