"""Settings that an operator chooses when the service starts.

Each setting is a field here and an environment variable of the same name, in capitals and with
``DPLEDGER_`` before it.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy.exc import ArgumentError

from dpledger.auth.federation import (
    CALLBACK_PATH,
    Federation,
    Grant,
    LoginClient,
    is_trusted_url,
    parse_grants,
)
from dpledger.storage.engine.engines import normalized_url

__all__ = ["DEFAULT_DATABASE", "VARIABLES", "InvalidSettings", "Settings", "misspelt", "variable"]

DEFAULT_DATABASE = "sqlite:///budget.db"
MOST_METRICS_DATASETS = 100
MOST_THRESHOLDS = 20
LEAST_SECRET_BYTES = 16
_BACKENDS = ("sqlite", "postgresql")
_PREFIX = "DPLEDGER_"
_DATASET = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_SAYS_YES = {"1", "true", "yes", "on"}
_SAYS_NO = {"", "0", "false", "no", "off"}


class InvalidSettings(ValueError):
    """A setting that the service cannot start with; ``option`` is its name where it was given."""

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        super().__init__(problem)


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"{_PREFIX}{name.upper()}"


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for each in text.split(",") if (part := each.strip())))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(each) for each in _names(text))


def _yes_or_no(text: str) -> bool:
    said = text.strip().lower()
    if said not in _SAYS_YES | _SAYS_NO:
        raise ValueError(f"must be one of {', '.join(sorted(_SAYS_YES | _SAYS_NO - {''}))}")
    return said in _SAYS_YES


@dataclass(frozen=True)
class Settings:
    """Settings of one service process, checked when they are made.

    Parameters
    ----------
    database
        Where the ledger is kept, as an SQLAlchemy URL: SQLite (the default, one file) or PostgreSQL.
    key_file
        The file with the server's own secrets. Beside an SQLite file, ``<file>.keys.json`` is made
        at the first start; for PostgreSQL it must be named, because all replicas need the same one.
    mark_file
        The file with the high-water marks of the ledgers; beside the keys, ``<key file>.marks``, by default.
    require_standby
        Whether the service is ready only while PostgreSQL has a synchronous standby.
    standby_seconds
        How often it is looked for a synchronous standby, where several hosts are named or one is required.
    expiry_seconds
        How often reservations are looked for that nobody settled in time.
    metrics_datasets
        Datasets whose remaining fraction ``/metrics`` tells, at most ``MOST_METRICS_DATASETS``.
    alert_url
        Where a webhook is sent when a dataset passes a threshold; none is sent without it.
    alert_secret_file
        The file with the secret that signs webhooks.
    alert_thresholds
        Parts of a budget, between 0 and 1, whose spending is reported.
    alert_seconds
        How often thresholds are looked at.
    max_connections
        How many connections are open at once; one more makes room or is answered 503.
    head_seconds
        How long the head of a request may take to arrive.
    body_seconds
        How long its body may take.
    otel
        Whether requests are traced with OpenTelemetry; needs the extra ``otel``.
    public_url
        Where browsers find the service, such as ``https://budget.example.org``.
    oidc_issuer
        The OpenID Connect issuer that is trusted; needs the extra ``oidc``.
    oidc_client_id
        The service's name at the issuer, for the dashboard's login; none without it.
    oidc_client_secret_file
        The file with the client's secret; a client without one proves itself by PKCE alone.
    oidc_audience
        What the issuer's bearer tokens for this service name as audience; none is taken without it.
    oidc_claim
        The claim that grants are looked up by; a path with dots where no claim has that name.
    oidc_scopes
        What a login asks the issuer for.
    oidc_grants
        What values of the claim stand for, as :func:`dpledger.auth.federation.parse_grants` reads it.
    """

    database: str = DEFAULT_DATABASE
    key_file: Path | None = None
    mark_file: Path | None = None
    require_standby: bool = False
    standby_seconds: float = 10.0
    expiry_seconds: float = 2.0
    metrics_datasets: tuple[str, ...] = ()
    alert_url: str | None = None
    alert_secret_file: Path | None = None
    alert_thresholds: tuple[float, ...] = (0.5, 0.8, 0.95)
    alert_seconds: float = 5.0
    max_connections: int = 1000
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    otel: bool = False
    public_url: str | None = None
    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret_file: Path | None = None
    oidc_audience: str | None = None
    oidc_claim: str = "groups"
    oidc_scopes: str = "openid"
    oidc_grants: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], **chosen: Any) -> "Settings":
        """Settings from ``DPLEDGER_*``; what is ``chosen``, on a command line say, comes before them."""
        found = {
            name: _read_from(environment, name)
            for name in VARIABLES.values()
            if name not in chosen and environment.get(variable(name))
        }
        return cls(**found, **chosen)

    def __post_init__(self) -> None:
        self.keys_path()
        self._check_positive(
            "expiry_seconds", "alert_seconds", "standby_seconds", "head_seconds", "body_seconds"
        )
        if self.require_standby and self.is_sqlite:
            raise InvalidSettings(variable("require_standby"), "needs PostgreSQL: SQLite has no standby")
        if self.max_connections < 1:
            raise InvalidSettings(variable("max_connections"), "must be a positive number")
        self._check_metrics()
        self._check_alerts()
        if self.otel and find_spec("opentelemetry.sdk") is None:
            raise InvalidSettings(variable("otel"), "needs the extra otel: pip install 'dpledger[otel]'")
        self._check_single_sign_on()

    @property
    def is_sqlite(self) -> bool:
        """Whether the ledger is one file."""
        return self._backend() == "sqlite"

    def keys_path(self) -> Path:
        """Where the server's secrets are."""
        backend = self._backend()
        if self.key_file is not None:
            return self.key_file
        if backend != "sqlite":
            raise InvalidSettings("--key-file", "a PostgreSQL ledger needs DPLEDGER_KEY_FILE or --key-file")
        return Path(f"{_sqlite_file(self.database)}.keys.json")

    def marks_path(self) -> Path:
        """Where the high-water marks are."""
        return self.mark_file or Path(f"{self.keys_path()}.marks")

    def alert_secret(self) -> bytes:
        """The secret that signs webhooks, without the line's end."""
        name = variable("alert_secret_file")
        if self.alert_secret_file is None:
            raise InvalidSettings(name, "webhooks are signed: name the file with the secret")
        secret = _secret_in(self.alert_secret_file, name)
        if len(secret) < LEAST_SECRET_BYTES:
            raise InvalidSettings(name, f"the secret must have at least {LEAST_SECRET_BYTES} bytes")
        return secret

    def federation(self) -> Federation | None:
        """The issuer that is trusted and what it may vouch for, if one is named."""
        if self.oidc_issuer is None:
            return None
        return Federation(
            self.oidc_issuer, self._grants(), self.oidc_claim, self.oidc_audience, self._login_client()
        )

    def _grants(self) -> tuple[Grant, ...]:
        try:
            return parse_grants(self.oidc_grants or "")
        except ValueError as error:
            raise InvalidSettings(variable("oidc_grants"), str(error)) from None

    def _login_client(self) -> LoginClient | None:
        if self.oidc_client_id is None:
            return None
        if self.public_url is None or not is_trusted_url(self.public_url) or "?" in self.public_url:
            raise InvalidSettings(
                variable("public_url"), "must be the https URL at which browsers find the service"
            )
        file, secret = self.oidc_client_secret_file, None
        if file is not None:
            secret = _secret_in(file, variable("oidc_client_secret_file")).decode("utf-8", "replace")
        redirect_url = self.public_url.rstrip("/") + CALLBACK_PATH
        return LoginClient(self.oidc_client_id, redirect_url, secret, self.oidc_scopes)

    def _check_single_sign_on(self) -> None:
        if self.oidc_issuer is None:
            for name in ("oidc_client_id", "oidc_client_secret_file", "oidc_audience", "oidc_grants"):
                if getattr(self, name) is not None:
                    raise InvalidSettings(variable(name), "needs DPLEDGER_OIDC_ISSUER")
            return
        name = variable("oidc_issuer")
        if not is_trusted_url(self.oidc_issuer) or "?" in self.oidc_issuer:
            raise InvalidSettings(name, "must be an https URL without a query")
        if find_spec("jwt") is None:
            raise InvalidSettings(name, "needs the extra oidc: pip install 'dpledger[oidc]'")
        if self.oidc_client_id is None and self.oidc_audience is None:
            raise InvalidSettings(name, "needs DPLEDGER_OIDC_CLIENT_ID, DPLEDGER_OIDC_AUDIENCE or both")
        if self.oidc_client_id == self.oidc_audience:
            # Else what a person logs in with would be good as a machine's token.
            raise InvalidSettings(variable("oidc_audience"), "must not be the client's id")
        if "openid" not in self.oidc_scopes.split():
            raise InvalidSettings(variable("oidc_scopes"), "must have openid among them")
        self.federation()

    def _check_positive(self, *names: str) -> None:
        for name in names:
            if not 0.0 < getattr(self, name) < float("inf"):
                raise InvalidSettings(variable(name), "must be a positive number of seconds")

    def _check_metrics(self) -> None:
        if len(self.metrics_datasets) > MOST_METRICS_DATASETS:
            raise InvalidSettings(
                variable("metrics_datasets"), f"must name at most {MOST_METRICS_DATASETS} datasets"
            )
        for name in self.metrics_datasets:
            if not _DATASET.fullmatch(name):
                raise InvalidSettings(variable("metrics_datasets"), f"{name!r} cannot be a dataset's name")

    def _check_alerts(self) -> None:
        name, thresholds = variable("alert_thresholds"), self.alert_thresholds
        if not thresholds or len(thresholds) > MOST_THRESHOLDS:
            raise InvalidSettings(name, f"must list between 1 and {MOST_THRESHOLDS} numbers")
        if not all(_is_threshold(each) for each in thresholds):
            raise InvalidSettings(name, "must be above 0, at most 1, and whole ten-thousandths")
        if self.alert_url is not None:
            # The URL may carry a secret: no message repeats it.
            if not _is_webhook(self.alert_url):
                raise InvalidSettings(
                    variable("alert_url"), "must be an http or https URL without a password"
                )
            self.alert_secret()

    def _backend(self) -> str:
        # The URL may carry a password: no message repeats it.
        try:
            backend = normalized_url(self.database).get_backend_name()
        except ArgumentError:
            raise InvalidSettings(
                "--database", f"must be a URL of {' or '.join(_BACKENDS)}, such as {DEFAULT_DATABASE}"
            ) from None
        return backend


VARIABLES = {variable(each.name): each.name for each in dataclasses.fields(Settings)}
"""Every environment variable that the service reads, with its setting."""
_OF_CLIENTS = ("url", "token")
_ALIKE = 0.75


def misspelt(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that look like a setting's name and are none, each with the setting it looks like.

    Others that begin alike are no mistake: Kubernetes sets some for a service called dpledger.
    """
    found: dict[str, str] = {}
    for name in environment:
        written = name.removeprefix(_PREFIX).lower()
        if name.startswith(_PREFIX) and name not in VARIABLES and written not in _OF_CLIENTS:
            for meant in difflib.get_close_matches(written, VARIABLES.values(), n=1, cutoff=_ALIKE):
                found[name] = variable(meant)
    return found


_READERS: dict[str, Callable[[str], Any]] = {
    "key_file": Path,
    "mark_file": Path,
    "require_standby": _yes_or_no,
    "standby_seconds": float,
    "expiry_seconds": float,
    "metrics_datasets": _names,
    "alert_secret_file": Path,
    "oidc_client_secret_file": Path,
    "alert_thresholds": _numbers,
    "alert_seconds": float,
    "max_connections": int,
    "head_seconds": float,
    "body_seconds": float,
    "otel": _yes_or_no,
}


def _read_from(environment: Mapping[str, str], name: str) -> Any:
    try:
        return _READERS.get(name, str)(environment[variable(name)])
    except ValueError as error:
        raise InvalidSettings(variable(name), f"cannot be read: {error}") from None


def _secret_in(file: Path, name: str) -> bytes:
    """The secret in a file, without the line's end."""
    try:
        secret = file.read_bytes().strip()
    except OSError as error:
        raise InvalidSettings(name, f"cannot be read: {error.strerror}") from None
    if not secret:
        raise InvalidSettings(name, "is empty")
    return secret


def _is_threshold(value: float) -> bool:
    return 0.0 < value <= 1.0 and abs(value * 10_000 - round(value * 10_000)) < 1e-6


def _is_webhook(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.username is None
            and parts.port != 0
        )
    except ValueError:
        return False


def _sqlite_file(database: str) -> str:
    path = normalized_url(database).database
    if not path or ":memory:" in path or "mode=memory" in path:
        raise InvalidSettings("--database", f"must be a file, such as {DEFAULT_DATABASE}")
    return path.removeprefix("file:").partition("?")[0]
