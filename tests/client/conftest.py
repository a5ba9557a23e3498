"""A ledger of the real service, in this process."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpledger_client import Dataset, Ledger, insecure_testing_noise

RHO = 0.5


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger") / "ledger.db"


@pytest.fixture(scope="session")
def ledger(database: Path) -> Iterator[Ledger]:
    with Ledger.embedded(database) as ledger:
        yield ledger


_NUMBERS = itertools.count()


@pytest.fixture
def open_dataset(ledger: Ledger) -> Callable[..., Dataset]:
    def opened(**settings: Any) -> Dataset:
        budget = settings.pop("budget", {"accounting": "zcdp", "rho": RHO})
        return ledger.dataset(f"data-{next(_NUMBERS)}").open(budget, **settings)

    return opened


@pytest.fixture
def dataset(open_dataset: Callable[..., Dataset]) -> Dataset:
    return open_dataset()


@pytest.fixture
def seeded() -> Iterator[None]:
    """Trainings take the same course whenever they are run, so that what is asserted of it always holds."""
    with insecure_testing_noise(2):
        yield
