"""Settings of every test."""

from hypothesis import settings

# The same cases on every run and every machine; no clock decides over a verdict.
settings.register_profile("dpledger", derandomize=True, deadline=None)
settings.load_profile("dpledger")
