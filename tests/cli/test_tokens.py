"""``dpledger token``, through a service and directly on its database."""

import json
from pathlib import Path

import pytest

from tests.cli.running import Served, run


def test_the_first_token_of_a_new_ledger(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'new.db'}"
    ended = run("token", "create", "--scope", "admin", "--database", database, "--json")

    made = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert made["token"].startswith(f"dpl_{made['id']}_")
    assert (tmp_path / "new.db.keys.json").stat().st_mode & 0o777 == 0o600
    (listed,) = run("token", "list", "--database", database, "--json").json["items"]
    assert {**listed, "token": made["token"]} == made


def test_a_token_is_made_listed_and_revoked(ledger_target: list[str], service: Served) -> None:
    limits = ["--scope", "spend", "--scope", "read", "--dataset", "adult", "--expires-in-seconds", "60.5"]
    token = run("token", "create", *limits, "--description", "job [7]", *ledger_target).out.strip()
    token_id = token.split("_")[1]

    listed = run("token", "list", *ledger_target, "--json").json
    assert listed == service.get("tokens?limit=1000")
    row = next(each for each in listed["items"] if each["id"] == token_id)
    assert (row["scopes"], row["datasets"], row["description"]) == (["read", "spend"], ["adult"], "job [7]")
    assert row["expires_at"]
    reported = run("token", "list", *ledger_target).out
    line = next(line for line in reported.splitlines() if token_id in line)
    assert line.split()[1:5] == ["read,", "spend", "adult", "good"]
    assert "job [7]" in line
    assert token not in reported

    assert run("token", "revoke", token_id, *ledger_target).out == f"revoked {token_id}\n"
    assert "revoked" in next(
        line for line in run("token", "list", *ledger_target).out.splitlines() if token_id in line
    )
    assert run("token", "revoke", token_id, *ledger_target, "--json").json == {
        "id": token_id,
        "revoked": True,
    }
    asked = run("dataset", "show", "adult", "--url", service.address, "--token", token)
    asked.failed(5, "the token is wrong, revoked or expired")


def test_a_token_is_of_a_team(ledger_target: list[str]) -> None:
    token = run("token", "create", "--scope", "spend", "--team", "ranking", *ledger_target).out.strip()
    reported = run("token", "list", *ledger_target).out
    assert "team" in reported.splitlines()[0]
    assert "ranking" in next(line for line in reported.splitlines() if token.split("_")[1] in line)


def test_a_token_that_has_expired_is_listed_as_such(ledger_target: list[str]) -> None:
    token = run("token", "create", "--scope", "read", "--expires-in-seconds", "1e-6", *ledger_target).out
    reported = run("token", "list", *ledger_target).out
    assert "expired" in next(line for line in reported.splitlines() if token.split("_")[1] in line)


def test_one_key_makes_one_token(ledger_target: list[str]) -> None:
    creation = ["token", "create", "--idempotency-key", "k", *ledger_target, "--scope"]
    assert run(*creation, "read").out == run(*creation, "read").out
    run(*creation, "spend").failed(3, "used before")


def test_a_list_of_tokens_goes_on_where_it_stopped(ledger_target: list[str]) -> None:
    every = run("token", "list", *ledger_target, "--json").json["items"]
    first = run("token", "list", "--limit", "1", *ledger_target, "--json").json
    rest = run("token", "list", "--next", first["next"], *ledger_target, "--json").json
    assert first["items"] + rest["items"] == every
    assert len(every) > 1
    assert f"more: --next {first['next']}" in run("token", "list", "--limit", "1", *ledger_target).out


def test_an_unknown_token_cannot_be_revoked(ledger_target: list[str]) -> None:
    run("token", "revoke", "abcd", *ledger_target).failed(4, "there is no token 'abcd'")
    run("token", "revoke", "..", *ledger_target).failed(4, "there is no token")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--expires-in-seconds", "-1", "expires_in_seconds"),
        ("--expires-in-seconds", "nan", "a number"),
        ("--dataset", "Ann", "datasets[0]"),
        ("--idempotency-key", "ü", "Idempotency-Key"),
    ],
)
def test_a_token_that_cannot_be_is_refused(
    ledger_target: list[str], option: str, value: str, words: str
) -> None:
    run("token", "create", "--scope", "read", option, value, *ledger_target).failed(2, words)


def test_only_an_administrator_makes_tokens_through_the_service(service: Served) -> None:
    reader = run("token", "create", "--scope", "read", "--database", service.database).out.strip()
    asked = ["token", "create", "--scope", "admin", "--url", service.address, "--token"]
    run(*asked, reader).failed(5, "scope admin")
