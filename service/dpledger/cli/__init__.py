"""The command ``dpledger``."""

from dpledger.cli.application import app, main

__all__ = ["app", "main"]
