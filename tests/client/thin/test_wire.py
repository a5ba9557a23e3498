"""What is asked again and what is not, under which key, and which error says what."""

import asyncio
import copy
import json
import pickle
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

import dpledger_client
from dpledger_client import (
    AdjacencyMismatch,
    AlreadyExists,
    AsyncLedger,
    BudgetExhausted,
    DPLedgerError,
    Forbidden,
    Gaussian,
    InvalidRequest,
    KeyReused,
    Ledger,
    NoAnswer,
    NotFound,
    NothingLeft,
    Poisson,
    PreconditionFailed,
    QuotaExceeded,
    Refused,
    Release,
    ReservationClosed,
    Retries,
    ServiceFailed,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
    Unproven,
    Unreachable,
    UnsettledWarning,
    errors,
)
from tests.client.thin.fake import FakeService, dropped, problem, recorded_but_dropped

STEP = Gaussian(1.0, 10.0)
TOKEN = "dpl_abc_secretsecretsecret"


@dataclass(frozen=True)
class Noted(Retries):
    """Nobody waits in these tests; how long they would have is kept."""

    pauses_made: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        self.pauses_made.append(seconds)

    async def wait_async(self, seconds: float) -> None:
        self.pauses_made.append(seconds)


@pytest.fixture
def pauses() -> list[float]:
    return []


def _ledger(service: FakeService, pauses: list[float] | None = None, attempts: int = 8) -> Ledger:
    retries = Noted(attempts, pauses_made=[] if pauses is None else pauses)
    return Ledger("http://ledger", TOKEN, transport=service.transport, retries=retries)


def test_a_request_says_who_asks_and_what() -> None:
    service = FakeService()
    account = _ledger(service).dataset("adult").run("job", partition="p")

    account.authorize([Release(STEP, count=2, purpose="gradient")], sample=Poisson(0.1))

    (request,) = service.requests
    assert (request.method, request.url.path) == ("POST", "/v1/datasets/adult/authorizations")
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.content) == {
        "run": "job",
        "releases": [
            {
                "mechanism": "gaussian",
                "sensitivity": 1.0,
                "noise_std": 10.0,
                "count": 2,
                "purpose": "gradient",
            }
        ],
        "sample": {"scheme": "poisson", "rate": 0.1},
        "partition": "p",
    }


def test_every_intent_has_a_key_of_its_own() -> None:
    service = FakeService()
    account = _ledger(service).dataset("d").run("job")

    for _ in range(3):
        account.authorize(STEP)

    assert len(set(service.keys)) == 3
    assert min(len(key) for key in service.keys) >= 32


@pytest.mark.parametrize(
    "failure",
    [
        dropped,
        lambda _: problem(503, "unavailable"),
        lambda _: httpx2.Response(502, text="bad gateway"),
        lambda _: problem(409, "idempotency-key-in-flight"),
    ],
)
def test_without_an_answer_the_same_is_asked_again_under_the_same_key(
    failure: Any, pauses: list[float]
) -> None:
    service = FakeService(failure, failure)

    granted = _ledger(service, pauses).dataset("d").run("job").authorize(STEP).granted

    assert len(set(service.keys)) == 1
    assert len(service.requests) == 3
    assert len(pauses) == 2
    assert len({request.content for request in service.requests}) == 1
    assert granted.key == service.keys[0]


def test_an_answer_lost_on_the_way_is_asked_for_again_and_paid_once(pauses: list[float]) -> None:
    service = FakeService()
    service.failures.append(recorded_but_dropped(service))

    granted = _ledger(service, pauses).dataset("d").run("job").authorize(STEP).granted

    assert granted.replayed
    assert len(service.entries) == 1
    assert len(pauses) == 1


def test_a_service_that_says_how_long_it_needs_is_given_that_time(pauses: list[float]) -> None:
    def busy(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(503, json={"type": "x"}, headers={"Retry-After": "7"})

    _ledger(FakeService(busy), pauses).dataset("d").run("job").authorize(STEP)

    assert pauses == [7.0]


def test_pauses_grow_and_are_bounded() -> None:
    policy = Retries(attempts=6, first_pause_seconds=1.0, longest_pause_seconds=3.0)
    drawn = [list(policy.pauses()) for _ in range(200)]
    longest = [max(each[database_target] for each in drawn) for database_target in range(5)]

    assert all(len(each) == 5 for each in drawn)
    assert [
        longest[database_target] <= limit for database_target, limit in enumerate([1.0, 2.0, 3.0, 3.0, 3.0])
    ] == [True] * 5
    assert longest[1] > 1.0
    assert longest[2] > 2.0


@pytest.mark.parametrize(
    "setting", [{"attempts": 0}, {"first_pause_seconds": -1.0}, {"longest_pause_seconds": float("nan")}]
)
def test_retries_are_checked(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Retries(**setting)


def test_queries_that_record_nothing_carry_no_key() -> None:
    answer = {"fits": 3}
    service = FakeService(*[lambda _: httpx2.Response(200, json=answer)] * 3)
    ledger = _ledger(service)

    assert ledger.ask("conversions", {"a": 1}) == answer
    assert ledger.dataset("d").forecast(STEP, Poisson(0.5)) == answer
    with pytest.raises(KeyError):
        ledger.cost(STEP, adjacency="add-remove")
    assert service.keys == ["", "", ""]
    assert [request.url.path for request in service.requests] == [
        "/v1/conversions",
        "/v1/datasets/d/forecast",
        "/v1/costs",
    ]


@pytest.mark.parametrize("part", [{}, {"partition": "p"}, {"allocation": "team-a"}])
def test_a_forecast_names_the_part_that_it_is_of(part: dict[str, Any]) -> None:
    service = FakeService(lambda _: httpx2.Response(200, json={"fits": 3}))

    _ledger(service).dataset("d").forecast(STEP, **part)

    body = json.loads(service.requests[0].content)
    assert {name: value for name, value in body.items() if name != "releases"} == part


def test_retries_end(pauses: list[float]) -> None:
    service = FakeService(*[dropped] * 50)
    ledger = _ledger(service, pauses, attempts=4)

    with pytest.raises(NoAnswer, match="no route") as raised:
        ledger.dataset("d").run("job").authorize(STEP)

    assert len(service.requests) == 4
    assert len(pauses) == 3
    assert raised.value.key == service.keys[0]


def test_a_service_that_stays_away_is_unavailable(pauses: list[float]) -> None:
    service = FakeService(*[lambda _: problem(503, "unavailable")] * 50)

    with pytest.raises(Unavailable):
        _ledger(service, pauses, attempts=2).dataset("d").budget()

    assert len(pauses) == 1


def test_what_had_no_answer_can_be_asked_again_later_under_its_key(pauses: list[float]) -> None:
    service = FakeService()
    service.failures = [recorded_but_dropped(service), *[dropped] * 3]
    account = _ledger(service, pauses, attempts=4).dataset("d").run("job")

    with pytest.raises(NoAnswer) as raised:
        account.authorize(STEP)
    granted = account.authorize(STEP, key=raised.value.key).granted

    assert granted.replayed
    assert len(service.entries) == 1
    assert len(pauses) == 3


@pytest.mark.parametrize(
    ("status", "slug", "kind"),
    [
        (409, "budget-exhausted", BudgetExhausted),
        (409, "quota-exceeded", QuotaExceeded),
        (401, "unauthenticated", Unauthenticated),
        (401, "token-ended", Unauthenticated),
        (403, "forbidden", Forbidden),
        (404, "not-found", NotFound),
        (409, "already-exists", AlreadyExists),
        (422, "invalid-input", InvalidRequest),
        (422, "adjacency-mismatch", AdjacencyMismatch),
        (422, "unproven", Unproven),
        (422, "unreachable", Unreachable),
        (422, "idempotency-key-reused", KeyReused),
        (409, "reservation-closed", ReservationClosed),
        (412, "precondition-failed", PreconditionFailed),
        (413, "payload-too-large", InvalidRequest),
        (418, "of-a-later-version", InvalidRequest),
    ],
)
def test_a_refusal_is_raised_as_its_kind_and_never_asked_again(
    status: int, slug: str, kind: type[Refused], pauses: list[float]
) -> None:
    service = FakeService(lambda _: problem(status, slug))

    with pytest.raises(kind, match="because") as raised:
        _ledger(service, pauses).dataset("d").run("job").authorize(STEP)

    assert type(raised.value) is kind
    assert (raised.value.slug, raised.value.status) == (slug, status)
    assert raised.value.key == service.keys[0]
    assert len(service.requests) == 1
    assert pauses == []


def test_a_fault_of_the_service_is_not_asked_again(pauses: list[float]) -> None:
    service = FakeService(lambda _: problem(500, "internal-error"))

    with pytest.raises(ServiceFailed) as raised:
        _ledger(service, pauses).dataset("d").run("job").authorize(STEP)

    assert raised.value.key == service.keys[0]
    assert pauses == []


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(200, text="<html>welcome</html>"),
        httpx2.Response(201, json=["a list"]),
        httpx2.Response(302, json={}),
        httpx2.Response(404, json={"detail": "Not Found"}),
    ],
)
def test_an_answer_of_something_else_is_recognised(response: httpx2.Response) -> None:
    service = FakeService(lambda _: response)

    with pytest.raises(UnexpectedAnswer):
        _ledger(service).dataset("d").run("job").authorize(STEP)


def test_an_exhausted_budget_says_what_was_asked_what_is_left_and_what_fits() -> None:
    members = {
        "requested": {"times": 1, "cost": {"rho": 2.0}},
        "remaining": {"rho": 0.5, "fraction": 0.1},
        "fits": {"times": 0, "cost_fraction": 0.25},
    }
    service = FakeService(lambda _: problem(409, "budget-exhausted", **members))

    with pytest.raises(BudgetExhausted) as raised:
        _ledger(service).dataset("d").run("job").authorize(STEP)

    error = raised.value
    assert (error.requested, error.remaining, error.fits) == tuple(members.values())


def test_an_exceeded_quota_says_whose_it_is_and_when_it_frees_something() -> None:
    quota = {"team": "ranking", "remaining": {"fraction": 0.0}, "frees_at": "2026-11-19T00:00:00Z"}
    service = FakeService(lambda _: problem(409, "quota-exceeded", quota=quota, fits={"times": 0}))

    with pytest.raises(QuotaExceeded) as raised:
        _ledger(service).dataset("d").run("job").authorize(STEP)

    error = raised.value
    assert (error.quota, error.frees_at) == (quota, "2026-11-19T00:00:00Z")
    assert isinstance(error, BudgetExhausted), "what stops at the one stops at the other"
    assert QuotaExceeded({"title": "t"}).frees_at is None


def test_an_item_beyond_a_quota_differs_from_one_beyond_the_budget() -> None:
    refused = [{"refused": {"quota": {"team": "ranking"}}}, {"refused": {}}]
    service = FakeService(lambda _: httpx2.Response(201, json={"outcome": "granted", "results": refused}))
    ledger = _ledger(service)
    spends = [ledger.dataset("d").run("job").spend(STEP)] * 2

    first, second = ledger.authorize_all(spends)

    assert (type(first), type(second)) == (QuotaExceeded, BudgetExhausted)


def _all_errors(kind: type[Exception]) -> set[type[Exception]]:
    below = set(kind.__subclasses__())
    return below.union(*map(_all_errors, below))


def test_the_tree_in_the_docstring_is_the_tree_of_the_code() -> None:
    drawn = [line for line in (errors.__doc__ or "").splitlines() if "──" in line]
    parents: dict[int, str] = {0: "DPLedgerError"}
    pairs = set()
    for line in drawn:
        depth = line.index("── ") // 4 + 1
        parents[depth] = line[line.index("── ") + 3 :].split()[0]
        pairs.add((parents[depth - 1], parents[depth]))

    kinds = _all_errors(DPLedgerError)
    assert pairs == {(kind.__bases__[0].__name__, kind.__name__) for kind in kinds}
    assert {kind.__name__ for kind in kinds} <= set(dpledger_client.__all__)


@pytest.mark.parametrize(
    "error",
    [
        BudgetExhausted({"detail": "d", "fits": {"times": 3}}, "key"),
        NoAnswer("gone", "key"),
        UnexpectedAnswer("what"),
    ],
)
def test_errors_survive_the_way_back_from_a_worker(error: DPLedgerError) -> None:
    again = pickle.loads(pickle.dumps(error))

    assert type(again) is type(error)
    assert (str(again), again.__dict__) == (str(error), error.__dict__)


def test_pages_are_read_one_after_another() -> None:
    pages = [{"items": [{"run": "a"}], "next": "CURSOR"}, {"items": [{"run": "b"}], "next": None}]
    service = FakeService(*[lambda _, page=page: httpx2.Response(200, json=page) for page in pages])

    assert [each["run"] for each in _ledger(service).dataset("d").runs()] == ["a", "b"]
    assert [request.url.params.get("next") for request in service.requests] == [None, "CURSOR"]


def test_handles_can_be_pickled_and_copied_and_say_no_secrets() -> None:
    ledger = Ledger("http://ledger", TOKEN, timeout_seconds=3.0)
    account = ledger.dataset("adult").run("job", partition="p")

    for again in (pickle.loads(pickle.dumps(account)), copy.deepcopy(account), copy.copy(account)):
        assert again.dataset.ledger._wire.connection == ledger._wire.connection
        assert (again.name, again.partition, again.dataset.name) == ("job", "p", "adult")
    for shown in (repr(account), repr(ledger), repr(ledger.dataset("adult")), repr(ledger._wire.connection)):
        assert "secret" not in shown


def test_a_handle_that_has_been_used_can_be_pickled() -> None:
    service = FakeService()
    account = _ledger(service).dataset("d").run("job")
    account.authorize(STEP)

    state = account.dataset.ledger._wire.__reduce__()

    assert state[1] == (account.dataset.ledger._wire.connection,)


def test_an_address_is_checked() -> None:
    with pytest.raises(ValueError, match="http"):
        Ledger("ledger:8000")


def test_the_async_client_asks_again_under_the_same_key(pauses: list[float]) -> None:
    service = FakeService(dropped, lambda _: problem(503, "unavailable"))
    retries = Noted(pauses_made=pauses)

    async def job() -> Any:
        async with AsyncLedger(
            "http://ledger", TOKEN, transport=service.transport, retries=retries
        ) as ledger:
            account = ledger.dataset("d").run("job")
            yes = await account.authorize(STEP)
            async with account.reserve(STEP, times=4) as hold:
                hold.take()
            return yes, hold

    yes, hold = asyncio.run(job())

    assert len(set(service.keys[:3])) == 1
    assert len(pauses) == 2
    assert yes.granted.id == "d~1"
    assert hold.settlement.used == 1


def test_the_async_client_gives_one_permit_a_key() -> None:
    service = FakeService()

    async def job() -> None:
        account = AsyncLedger("http://ledger", transport=service.transport).dataset("d").run("j")
        yes = await account.authorize(STEP)
        await account.authorize(STEP, key=yes.granted.key)

    with pytest.raises(NothingLeft):
        asyncio.run(job())
    assert len(service.entries) == 1


def test_the_async_client_refuses_alike() -> None:
    service = FakeService(lambda _: problem(409, "budget-exhausted", fits={"times": 2}))

    async def job() -> None:
        await AsyncLedger("http://ledger", transport=service.transport).dataset("d").run("j").authorize(STEP)

    with pytest.raises(BudgetExhausted) as raised:
        asyncio.run(job())
    assert raised.value.fits == {"times": 2}


def test_the_async_client_judges_a_failed_settlement_alike(pauses: list[float]) -> None:
    service = FakeService()
    ledger = AsyncLedger("http://ledger", transport=service.transport, retries=Noted(2, pauses_made=pauses))

    async def job(*failures: Any) -> Any:
        async with ledger.dataset("d").run("j").reserve(STEP, times=3) as hold:
            service.failures = list(failures)
        return hold

    with pytest.warns(UnsettledWarning, match="all 3"):
        assert asyncio.run(job(dropped, dropped)).settlement is None
    with pytest.raises(ReservationClosed):
        asyncio.run(job(lambda _: problem(409, "reservation-closed", how="settled")))
    assert len(pauses) == 1


def test_the_async_client_refuses_a_reservation_without_settling() -> None:
    service = FakeService(lambda _: problem(409, "budget-exhausted"))
    ledger = AsyncLedger("http://ledger", transport=service.transport)

    async def job() -> None:
        async with ledger.dataset("d").run("j").reserve(STEP, times=3):
            pytest.fail("the body of a refused reservation ran")

    with pytest.raises(BudgetExhausted):
        asyncio.run(job())
    assert len(service.requests) == 1


def test_the_async_client_asks_queries_and_shows_no_secret() -> None:
    service = FakeService(lambda _: httpx2.Response(200, json={"a": 1}))
    ledger = AsyncLedger("http://ledger", TOKEN, transport=service.transport)

    assert asyncio.run(ledger.ask("conversions", {})) == {"a": 1}
    assert "secret" not in repr(ledger) + repr(ledger.dataset("d").run("j", partition="p"))


def test_the_async_client_can_be_used_from_one_event_loop_after_another() -> None:
    service = FakeService()
    ledger = AsyncLedger("http://ledger", transport=service.transport)

    for _ in range(2):
        asyncio.run(ledger.dataset("d").run("j").authorize(STEP))

    assert len(service.entries) == 2


def test_the_async_client_ends_its_retries(pauses: list[float]) -> None:
    service = FakeService(*[dropped] * 9)
    ledger = AsyncLedger("http://ledger", transport=service.transport, retries=Noted(2, pauses_made=pauses))

    with pytest.raises(NoAnswer):
        asyncio.run(ledger.key_set())
    assert len(pauses) == 1


@pytest.mark.parametrize("token", ["dpl_…", "dpl_abc_secret\n"])
def test_a_token_that_cannot_be_sent_is_refused_at_once_and_not_repeated(token: str) -> None:
    with pytest.raises(ValueError, match="dpledger token create") as raised:
        Ledger("http://ledger", token=token)
    assert token not in str(raised.value)
