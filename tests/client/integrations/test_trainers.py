"""Without their libraries the trainers' integrations say what to install; ``make test-torch`` has them."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dpledger_client import Ledger, MissingExtra
from dpledger_client.integrations.huggingface import make_trainer
from dpledger_client.integrations.lightning import ledger_callback
from tests.client.integrations.test_opacus import Training, account_of


def test_without_lightning_it_says_what_to_install(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    engine: Any = SimpleNamespace(accountant=Training(account_of(ledger)).accountant)

    with pytest.raises(MissingExtra, match="pip install lightning"):
        ledger_callback(engine)


def test_without_transformers_it_says_what_to_install(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)

    with pytest.raises(MissingExtra, match="pip install transformers"):
        make_trainer(account_of(ledger), noise_multiplier=1.0)
