"""The command line directly on PostgreSQL, where it has no file to look for."""

from pathlib import Path

from dpledger.storage.migrate import head_revision
from tests.cli.running import STEP, run
from tests.support.databases import PostgresqlServer


def test_a_session_on_postgresql(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    where = ["--database", postgresql.create()]
    keys = ["--key-file", str(tmp_path / "keys.json")]

    run("dataset", "list", *where).failed(3, "has no ledger in it")
    assert run("migrate", *where, "--json").json == {"from": None, "to": head_revision(), "changed": True}
    token = ["--token", run("token", "create", "--scope", "admin", *where, *keys).out.strip()]
    opened = run("dataset", "open", "adult", "--budget", "zcdp:rho=1", *where, *keys, *token)
    assert opened.code == 0, opened.err
    changing = ["dataset", "change-budget", "adult", "--budget", "zcdp:rho=2", "--reason", "more"]
    assert run(*changing, *where, *keys, *token).code == 0

    assert [each["name"] for each in run("dataset", "list", *where, "--json").json["items"]] == ["adult"]
    assert (
        run("entries", "adult", "--kind", "budget-changed", *where, "--json").json["items"][0]["sequence"]
        == 2
    )
    assert run("verify", *where).code == 0
    assert len(run("export", "adult", *where).out.splitlines()) == 2
    assert run("forecast", "adult", STEP, *where, "--json").json["fits"] == 400
    assert len(run("token", "list", *where, "--json").json["items"]) == 1
