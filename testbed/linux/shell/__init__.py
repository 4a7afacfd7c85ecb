"""Mininet's command line inside a run, before its start and in pauses.

It is a copy of the run's process: while it waits for what is typed, virtual time stands still, and while a command of it
waits, virtual time goes on, and the run with it.
"""
