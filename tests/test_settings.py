from pathlib import Path
from typing import Any

import pytest

from dpledger.auth.federation import Federation, Grant, LoginClient
from dpledger.auth.scopes import Scope
from dpledger.settings import DEFAULT_DATABASE, VARIABLES, InvalidSettings, Settings, misspelt

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


SECRET = "a secret that both sides know"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    return path


def test_every_setting_comes_from_the_environment(secret_file: Path) -> None:
    given = {
        "DPLEDGER_DATABASE": POSTGRESQL,
        "DPLEDGER_KEY_FILE": "keys.json",
        "DPLEDGER_MARK_FILE": "elsewhere/marks",
        "DPLEDGER_REQUIRE_STANDBY": "yes",
        "DPLEDGER_STANDBY_SECONDS": "3",
        "DPLEDGER_EXPIRY_SECONDS": "0.5",
        "DPLEDGER_METRICS_DATASETS": "adult, trips,,adult",
        "DPLEDGER_ALERT_URL": "https://example.org/hook?token=hidden",
        "DPLEDGER_ALERT_SECRET_FILE": str(secret_file),
        "DPLEDGER_ALERT_THRESHOLDS": "0.25, 1",
        "DPLEDGER_ALERT_SECONDS": "60",
        "DPLEDGER_MAX_CONNECTIONS": "50",
        "DPLEDGER_HEAD_SECONDS": "3",
        "DPLEDGER_BODY_SECONDS": "4.5",
        "DPLEDGER_OTEL": "true",
        "DPLEDGER_PUBLIC_URL": "https://budget.example.org/",
        "DPLEDGER_OIDC_ISSUER": "https://login.example.org",
        "DPLEDGER_OIDC_CLIENT_ID": "dpledger",
        "DPLEDGER_OIDC_CLIENT_SECRET_FILE": str(secret_file),
        "DPLEDGER_OIDC_AUDIENCE": "budget",
        "DPLEDGER_OIDC_CLAIM": "roles",
        "DPLEDGER_OIDC_SCOPES": "openid roles",
        "DPLEDGER_OIDC_GRANTS": "auditors=read",
    }
    found = Settings.from_environment(given)

    assert set(given) == set(VARIABLES)
    assert found == Settings(
        database=POSTGRESQL,
        key_file=Path("keys.json"),
        mark_file=Path("elsewhere/marks"),
        require_standby=True,
        standby_seconds=3.0,
        expiry_seconds=0.5,
        metrics_datasets=("adult", "trips"),
        alert_url="https://example.org/hook?token=hidden",
        alert_secret_file=secret_file,
        alert_thresholds=(0.25, 1.0),
        alert_seconds=60.0,
        max_connections=50,
        head_seconds=3.0,
        body_seconds=4.5,
        otel=True,
        public_url="https://budget.example.org/",
        oidc_issuer="https://login.example.org",
        oidc_client_id="dpledger",
        oidc_client_secret_file=secret_file,
        oidc_audience="budget",
        oidc_claim="roles",
        oidc_scopes="openid roles",
        oidc_grants="auditors=read",
    )
    assert found.alert_secret() == SECRET.encode()
    assert found.federation() == Federation(
        issuer="https://login.example.org",
        grants=(Grant("auditors", Scope.READ),),
        claim="roles",
        audience="budget",
        login=LoginClient(
            "dpledger", "https://budget.example.org/dashboard/login/sso/callback", SECRET, "openid roles"
        ),
    )
    assert SECRET not in repr(found.federation())


SIGN_ON: dict[str, Any] = {
    "oidc_issuer": "https://login.example.org",
    "oidc_client_id": "dpledger",
    "public_url": "https://budget.example.org",
    "oidc_grants": "auditors=read",
}


@pytest.mark.parametrize(
    ("changed", "option"),
    [
        ({"oidc_issuer": "http://login.example.org"}, "OIDC_ISSUER"),
        ({"oidc_issuer": "https://ann:secret@login.example.org"}, "OIDC_ISSUER"),
        ({"oidc_issuer": "https://login.example.org/?a=b"}, "OIDC_ISSUER"),
        ({"oidc_issuer": "login.example.org"}, "OIDC_ISSUER"),
        ({"oidc_issuer": "https://[login"}, "OIDC_ISSUER"),
        ({"oidc_issuer": None}, "OIDC_CLIENT_ID"),
        ({"oidc_issuer": None, "oidc_client_id": None}, "OIDC_GRANTS"),
        ({"oidc_client_id": None}, "OIDC_ISSUER"),
        ({"public_url": None}, "PUBLIC_URL"),
        ({"public_url": "http://budget.example.org"}, "PUBLIC_URL"),
        ({"oidc_audience": "dpledger"}, "OIDC_AUDIENCE"),
        ({"oidc_scopes": "profile"}, "OIDC_SCOPES"),
        ({"oidc_grants": None}, "OIDC_GRANTS"),
        ({"oidc_grants": "auditors=everything"}, "OIDC_GRANTS"),
        ({"oidc_client_secret_file": Path("/nowhere/at/all")}, "OIDC_CLIENT_SECRET_FILE"),
        ({"oidc_client_secret_file": Path("/dev/null")}, "OIDC_CLIENT_SECRET_FILE"),
    ],
)
def test_a_wrong_setting_of_single_sign_on_is_refused(changed: dict[str, Any], option: str) -> None:
    Settings(**SIGN_ON)

    with pytest.raises(InvalidSettings) as refused:
        Settings(**SIGN_ON | changed)

    assert refused.value.option == f"DPLEDGER_{option}"
    assert "secret" not in str(refused.value)


def test_single_sign_on_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpledger.settings.find_spec", lambda name: None)

    with pytest.raises(InvalidSettings, match="dpledger\\[oidc\\]"):
        Settings(**SIGN_ON)


def test_marks_are_beside_the_keys_unless_they_are_named() -> None:
    assert Settings("sqlite:///a.db").marks_path() == Path("a.db.keys.json.marks")
    assert Settings("sqlite:///a.db", Path("k")).marks_path() == Path("k.marks")
    assert Settings("sqlite:///a.db", mark_file=Path("m")).marks_path() == Path("m")


def test_sqlite_has_no_standby_to_require() -> None:
    with pytest.raises(InvalidSettings, match="SQLite has no standby"):
        Settings("sqlite:///a.db", require_standby=True)


def test_what_is_absent_or_empty_has_its_default() -> None:
    assert Settings.from_environment({}) == Settings()
    assert Settings.from_environment(dict.fromkeys(VARIABLES, "")) == Settings()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("DPLEDGER_DATABSE", "DPLEDGER_DATABASE"),
        ("DPLEDGER_ALERT_TRESHOLDS", "DPLEDGER_ALERT_THRESHOLDS"),
        ("DPLEDGER_KEYFILE", "DPLEDGER_KEY_FILE"),
        ("DPLEDGER_METRICS_DATASET", "DPLEDGER_METRICS_DATASETS"),
        ("DPLEDGER_EXPIRY_SECOND", "DPLEDGER_EXPIRY_SECONDS"),
    ],
)
def test_a_misspelt_setting_is_noticed(written: str, meant: str) -> None:
    assert misspelt({written: "", "PATH": ""}) == {written: meant}


def test_variables_that_only_begin_like_settings_are_let_be() -> None:
    of_kubernetes = ("SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_8000_TCP", "PORT_8000_TCP_ADDR")
    others = [*VARIABLES, "DPLEDGER_URL", "DPLEDGER_TOKEN", *[f"DPLEDGER_{each}" for each in of_kubernetes]]

    assert misspelt(dict.fromkeys([*others, "DATABSE"], "")) == {}


def test_what_is_chosen_comes_before_the_environment() -> None:
    found = Settings.from_environment({"DPLEDGER_DATABASE": "sqlite:///one.db"}, database="sqlite:///two.db")

    assert found.database == "sqlite:///two.db"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DPLEDGER_EXPIRY_SECONDS", "soon"),
        ("DPLEDGER_EXPIRY_SECONDS", "0"),
        ("DPLEDGER_EXPIRY_SECONDS", "nan"),
        ("DPLEDGER_ALERT_SECONDS", "-1"),
        ("DPLEDGER_ALERT_SECONDS", "inf"),
        ("DPLEDGER_ALERT_THRESHOLDS", "0.5,high"),
        ("DPLEDGER_ALERT_THRESHOLDS", ","),
        ("DPLEDGER_ALERT_THRESHOLDS", "0"),
        ("DPLEDGER_ALERT_THRESHOLDS", "1.5"),
        ("DPLEDGER_ALERT_THRESHOLDS", "nan"),
        ("DPLEDGER_ALERT_THRESHOLDS", "0.12345"),
        ("DPLEDGER_ALERT_THRESHOLDS", ",".join(f"0.{index:02}" for index in range(1, 22))),
        ("DPLEDGER_METRICS_DATASETS", "no name"),
        ("DPLEDGER_METRICS_DATASETS", ",".join(f"d{index}" for index in range(101))),
        ("DPLEDGER_OTEL", "perhaps"),
        ("DPLEDGER_ALERT_URL", "ftp://example.org/hidden"),
        ("DPLEDGER_ALERT_URL", "https://"),
        ("DPLEDGER_ALERT_URL", "https://ann:hidden@example.org/"),
        ("DPLEDGER_ALERT_URL", "https://example.org:99999/hidden"),
    ],
)
def test_what_the_service_cannot_start_with_is_refused_by_its_name(
    name: str, value: str, secret_file: Path
) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Settings.from_environment({"DPLEDGER_ALERT_SECRET_FILE": str(secret_file), name: value})

    assert refused.value.option == name
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("content", [None, "", "short\n"])
def test_webhooks_need_a_secret(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidSettings) as refused:
        Settings(alert_url="https://example.org/", alert_secret_file=path)

    assert refused.value.option == "DPLEDGER_ALERT_SECRET_FILE"
    with pytest.raises(InvalidSettings, match="name the file"):
        Settings(alert_url="https://example.org/")
