"""Mininet's command line inside a run, before its start and in pauses.

It is a fork of the run's process. While it waits for input, virtual time stops. While one of its commands waits,
virtual time and the run continue.
"""
