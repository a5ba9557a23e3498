"""dpledger: a service that keeps the privacy budget of every dataset."""

__version__ = "0.1.0"
