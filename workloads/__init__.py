"""Content of jobs: traces, models, job lists, collectives, and importers.

Collectives use only the standard library, so that a worker starts fast inside any host.
"""
