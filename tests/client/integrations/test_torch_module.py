"""Without torch a module says what to install; ``make test-torch`` runs ``with_torch.py``, with torch."""

import sys

import pytest

from dpledger_client import MissingExtra
from dpledger_client.objectives.torch_module import TorchModule


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(MissingExtra, match="torch"):
        TorchModule(object())
