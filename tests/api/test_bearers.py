"""Machines with tokens of an issuer: what they may, for how long, and as whom they are recorded."""

from collections.abc import Iterator
from typing import Any

import pytest

from dpledger.auth import gatekeeper
from dpledger.auth.gatekeeper import FRESH_SECONDS
from dpledger.auth.web_tokens import LEEWAY_SECONDS
from tests.api.service import Service, SetClock, made, problem
from tests.auth.issuer import (
    AUDIENCE,
    CLIENT_ID,
    EC_KEY,
    OTHER_KEY,
    RSA_KEY,
    Issuer,
    issuing,
    published,
    signed,
)
from tests.dashboard.visitor import serving


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Issuer]]:
    folder = tmp_path_factory.mktemp("bearers")
    with issuing(SetClock()) as issuer:
        chosen: dict[str, Any] = {
            "oidc_issuer": issuer.url,
            "oidc_audience": AUDIENCE,
            "oidc_grants": "auditors=read; admins=admin; ml=spend:adult,bank; trips=spend:trips",
        }
        with serving(f"sqlite:///{folder / 'l.db'}", folder / "keys.json", **chosen) as service:
            issuer.clock = service.clock
            for name in ("adult", "trips"):
                service.open(name, {"accounting": "zcdp", "rho": 50.0})
            yield service, issuer


@pytest.fixture
def service(running: tuple[Service, Issuer]) -> Service:
    return running[0]


@pytest.fixture
def issuer(running: tuple[Service, Issuer]) -> Iterator[Issuer]:
    _, issuer = running
    keys = issuer.keys
    yield issuer
    issuer.keys, issuer.failing = keys, False


def bearer(service: Service, issuer: Issuer, *groups: str, **changed: Any) -> Service:
    """The service for a machine with these groups."""
    return service.as_bearer(signed(issuer.claims(groups=list(groups), **changed)))


def test_a_machine_spends_where_its_groups_say(service: Service, issuer: Issuer) -> None:
    machine = bearer(service, issuer, "ml", sub="trainer")

    made(machine.authorize())
    problem(machine.authorize(dataset="trips"), 403, "forbidden")
    problem(
        machine.post("/v1/datasets", {"name": "own", "budget": {"accounting": "zcdp", "rho": 1.0}}),
        403,
        "forbidden",
    )
    assert [each["name"] for each in machine.shown("/v1/datasets")["items"]] == ["adult"]


def test_each_scope_is_the_claims(service: Service, issuer: Issuer) -> None:
    reader, admin = (
        bearer(service, issuer, "auditors", sub="eve"),
        bearer(service, issuer, "admins", sub="root"),
    )

    assert reader.get("/v1/datasets").status_code == 200
    problem(reader.authorize(), 403, "forbidden")
    problem(reader.get("/v1/tokens"), 403, "forbidden")
    assert admin.get("/v1/tokens").status_code == 200
    assert admin.make_token("read").get("/v1/datasets").status_code == 200


def test_groups_are_those_of_the_token_shown(service: Service, issuer: Issuer) -> None:
    """Not those that the subject had before: each token has claims of its own."""
    made(bearer(service, issuer, "ml", sub="changing").authorize())

    problem(bearer(service, issuer, "auditors", sub="changing").authorize(), 403, "forbidden")
    problem(bearer(service, issuer, "guests", sub="changing").get("/v1/datasets"), 403, "forbidden")


def test_a_renewed_token_is_the_same_actor(service: Service, issuer: Issuer) -> None:
    first = bearer(service, issuer, "ml", sub="renewing")
    renewed = bearer(service, issuer, "ml", sub="renewing", exp=issuer.clock.at_us // 1_000_000 + 900)
    other = bearer(service, issuer, "ml", sub="other")
    assert first.token != renewed.token

    granted = first.authorize(key="one")
    again = renewed.authorize(key="one")
    assert again.headers["idempotency-replayed"] == "true"
    assert made(again)["id"] == made(granted)["id"]
    assert "idempotency-replayed" not in other.authorize(key="one").headers

    held = made(first.reserve(3))["id"]
    problem(other.settle(held, 1), 403, "forbidden")
    assert renewed.settle(held, 1).status_code == 201


def test_an_actor_is_listed_without_a_secret_and_shut_out_by_its_id(service: Service, issuer: Issuer) -> None:
    machine = bearer(service, issuer, "ml", sub="outcast")
    made(machine.authorize())
    (row,) = [each for each in service.shown("/v1/tokens")["items"] if "outcast" in each["description"]]
    assert "token" not in row

    service.delete(f"/v1/tokens/{row['id']}")

    problem(machine.authorize(), 401, "token-ended")
    fresh = bearer(service, issuer, "ml", sub="outcast", exp=issuer.clock.at_us // 1_000_000 + 999)
    problem(fresh.get("/v1/datasets"), 401, "unauthenticated")
    problem(fresh.authorize(), 401, "unauthenticated")


def test_a_token_ends_at_its_time_also_where_memory_knows_it(
    service: Service, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    web_tokens = service.app.state.services.gatekeeper._web_tokens
    monkeypatch.setattr(web_tokens, "_elapsed", lambda: 1.0)
    machine = bearer(service, issuer, "ml", sub="short", exp=issuer.clock.at_us // 1_000_000 + 60)
    made(machine.authorize())
    service.clock.advance(60 + LEEWAY_SECONDS - 1)
    made(machine.authorize())

    service.clock.advance(1)

    problem(machine.authorize(), 401, "unauthenticated")
    problem(machine.get("/v1/datasets"), 401, "unauthenticated")


def test_memory_is_asked_for_a_moment_even_where_a_transaction_asks_again(
    service: Service, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A withdrawn key would else be good for ever on the way that looks at memory of any age."""
    bearers, keeper = service.app.state.services.gatekeeper._web_tokens, service.app.state.services.gatekeeper
    now = [100.0]
    monkeypatch.setattr(bearers, "_elapsed", lambda: now[0])
    token = gatekeeper.bearer_token(f"Bearer {signed(issuer.claims(groups=['ml'], sub='kept'))}")
    keeper.caller(f"Bearer {token.text}")
    assert keeper.find_cached(token, float("inf")) is not None

    now[0] += FRESH_SECONDS + 0.1

    assert keeper.find_cached(token, float("inf")) is None


def test_memory_is_bounded(service: Service, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    bearers = service.app.state.services.gatekeeper._web_tokens
    monkeypatch.setattr("dpledger.auth.bearers._KEPT", 2)
    bearers._kept.clear()

    for number in range(4):
        assert (
            bearer(service, issuer, "auditors", sub="many", jti=str(number)).get("/v1/datasets").status_code
            == 200
        )

    assert len(bearers._kept) == 2


@pytest.mark.parametrize(
    "forge",
    [
        lambda claims: signed(claims, "", "none"),
        lambda claims: signed(claims, "k" * 64, "HS256"),
        lambda claims: signed(claims, OTHER_KEY),
        lambda claims: signed(claims, kid="unknown"),
        lambda claims: signed(claims | {"aud": CLIENT_ID, "nonce": "of a login"}),
        lambda claims: signed(claims | {"iss": "https://evil.example"}),
        lambda claims: signed(claims | {"exp": 1}),
        lambda claims: signed(claims | {"filler": "a" * 20_000}),
        lambda claims: signed(claims)[:-4] + "AAAA",
        lambda claims: signed(claims) + ".a",
    ],
)
def test_a_forged_token_is_told_nothing(service: Service, issuer: Issuer, forge: Any) -> None:
    forged = service.as_bearer(forge(issuer.claims(groups=["admins"])))

    for answer in (forged.authorize(), forged.get("/v1/datasets"), forged.get("/v1/tokens")):
        said = problem(answer, 401, "unauthenticated")
        assert (
            said["detail"]
            == problem(service.as_bearer("x").get("/v1/datasets"), 401, "unauthenticated")["detail"]
        )


def test_either_algorithm_is_taken(service: Service, issuer: Issuer) -> None:
    for text in (signed(issuer.claims()), signed(issuer.claims(), EC_KEY, "ES256", kid="ec-1")):
        assert service.as_bearer(text).get("/v1/datasets").status_code == 200


def test_where_the_issuer_was_never_read_a_machine_is_asked_to_come_again(
    service: Service, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = service.app.state.services.gatekeeper._web_tokens._provider
    issuer.failing = True
    monkeypatch.setattr(provider, "_published", None)
    monkeypatch.setattr(provider, "_tried_at", -float("inf"))

    answer = bearer(service, issuer, "admins", sub="late").authorize()

    problem(answer, 503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    made(service.authorize())


def test_a_withdrawn_key_lets_nobody_in(
    service: Service, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = service.app.state.services.gatekeeper._web_tokens._provider
    issuer.keys = [published("rsa-2", RSA_KEY)]
    monkeypatch.setattr(provider, "_published", None)
    monkeypatch.setattr(provider, "_tried_at", -float("inf"))

    problem(bearer(service, issuer, "admins", sub="withdrawn").get("/v1/datasets"), 401, "unauthenticated")
    text = signed(issuer.claims(), kid="rsa-2")
    assert service.as_bearer(text).get("/v1/datasets").status_code == 200
    monkeypatch.setattr(provider, "_published", None)


def test_without_an_issuer_such_a_token_is_none(issuer: Issuer, tmp_path: Any) -> None:
    with serving(f"sqlite:///{tmp_path / 'l.db'}", tmp_path / "keys.json") as plain:
        problem(bearer(plain, issuer, "admins").get("/v1/datasets"), 401, "unauthenticated")
