"""The reference runner: it leases jobs over HTTP, judges them in isolation and reports.

Guarantees: this package speaks only HTTP with the service and imports nothing of it, so it
can be taken as it is to a machine that has nothing else of the project.
"""
