"""Benchmarks; a package, so that Python does not import one of the same name from an installed distribution (such as
pySBD)."""
