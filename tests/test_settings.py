from pathlib import Path

import pytest

from dpledger.settings import DEFAULT_DATABASE, InvalidSettings, Settings

POSTGRESQL = "postgresql://ann:secret@host/ledger"


@pytest.mark.parametrize(
    ("database", "path"),
    [
        (DEFAULT_DATABASE, "budget.db.keys.json"),
        ("sqlite:////var/lib/ledger.db", "/var/lib/ledger.db.keys.json"),
        ("sqlite:///file:ledger.db?mode=rwc&uri=true", "ledger.db.keys.json"),
    ],
)
def test_the_keys_lie_beside_an_sqlite_file(database: str, path: str) -> None:
    settings = Settings(database)

    assert settings.keys_path() == Path(path)
    assert settings.is_sqlite


@pytest.mark.parametrize(
    "database", [DEFAULT_DATABASE, POSTGRESQL, "postgresql://ann@one:5432,two:5432/ledger"]
)
def test_a_key_file_may_be_named(database: str) -> None:
    settings = Settings(database, Path("elsewhere.json"))

    assert settings.keys_path() == Path("elsewhere.json")
    assert settings.is_sqlite == database.startswith("sqlite")


def test_postgresql_needs_a_named_key_file() -> None:
    with pytest.raises(InvalidSettings, match="DPLEDGER_KEY_FILE") as refused:
        Settings(POSTGRESQL)

    assert refused.value.option == "--key-file"
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "database", ["", "budget.db", "mysql://ann:secret@host/ledger", "sqlite://", "sqlite:///:memory:"]
)
def test_what_is_no_ledger_is_refused_without_telling_the_password(database: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Settings(database)

    assert refused.value.option == "--database"
    assert "secret" not in str(refused.value)
