"""Estimators against the real service, in this process."""
