"""Queries: computations that record nothing, used by the API and the command line alike.

A query is a frozen value (``requests``), its answer a text or a failure (``outcomes``). ``evaluation``
answers one in this process; ``worker_pool`` has a process of its own answer it.
"""
