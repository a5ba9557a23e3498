"""Optimizers against the real service, in this process."""
