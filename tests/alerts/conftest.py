from collections.abc import Iterator

import pytest

from tests.alerts.receiver import Receiver, receiving
from tests.api.conftest import adult, service
from tests.support.databases import database_url, postgresql, template

__all__ = ["adult", "database_url", "postgresql", "service", "template"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver
