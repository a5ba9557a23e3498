"""Without JAX its integration says what to install; ``make test-jax`` runs ``with_jax.py``, with JAX."""

import sys
from typing import Any

import numpy as np
import pytest

from dpledger_client import Account, MissingExtra
from dpledger_client.integrations.jax import PrivateGradients


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    nobody: Any = object.__new__(Account)
    X = np.zeros((1, 1))

    with pytest.raises(MissingExtra, match="jax"):
        PrivateGradients(lambda *_: 0.0, nobody, X, X[0], batch_size=1, clip=1.0, noise_multiplier=1.0)
