"""Benchmarks; a package, so that one of the same name in an installed distribution (pySBD has one) is not taken for it."""
