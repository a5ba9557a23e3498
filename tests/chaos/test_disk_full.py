"""A PostgreSQL that cannot write its log at a commit goes down: the service says that it is away."""

import psycopg
import pytest

from dpledger.ledger.errors import Unavailable
from dpledger.storage.engine.failures import Busy, translate_error
from tests.chaos.sites import forbid_growth
from tests.deploy.clusters import make_primary, server


def test_a_server_that_panics_at_a_commit_is_away_and_nothing_is_tried_again() -> None:
    """Its error has the state of any internal one, XX000: its severity says that the server goes down."""
    with server() as primary:
        make_primary(primary)
        with primary.connect() as connection:
            connection.execute("CREATE TABLE entries (number int)")
            connection.commit()
            connection.execute("INSERT INTO entries VALUES (1)")
            forbid_growth([connection.info.backend_pid], forbidden=True)
            with pytest.raises(psycopg.Error) as caught:
                connection.commit()

    assert caught.value.diag.severity_nonlocalized == "PANIC"
    translated = translate_error(caught.value)
    assert isinstance(translated, Unavailable)
    assert not isinstance(translated, Busy)
