"""Every route by every kind of token: one table of what each needs, compared with the routes themselves."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.api.service import Service

NEEDED = {
    "public": "get /healthz, get /readyz, get /.well-known/dpledger-keys.json",
    "read": (
        "post /v1/costs, post /v1/conversions, post /v1/amplifications, post /v1/compositions,"
        " post /v1/calibrations, get /metrics, get /v1/datasets, get /v1/datasets/{dataset},"
        " get /v1/datasets/{dataset}/allocations, get /v1/datasets/{dataset}/allocations/{allocation},"
        " get /v1/datasets/{dataset}/budget, get /v1/datasets/{dataset}/entries,"
        " get /v1/datasets/{dataset}/entries/{sequence}, get /v1/datasets/{dataset}/runs,"
        " get /v1/datasets/{dataset}/verification, get /v1/datasets/{dataset}/export,"
        " get /v1/datasets/{dataset}/deployment, get /v1/datasets/{dataset}/report,"
        " get /v1/datasets/{dataset}/quotas, get /v1/datasets/{dataset}/budget-requests,"
        " get /v1/datasets/{dataset}/budget-requests/{request}, get /v1/datasets/{dataset}/renewal,"
        " get /v1/datasets/{dataset}/partitions, get /v1/datasets/{dataset}/partitions/{partition},"
        " post /v1/datasets/{dataset}/forecast,"
        " get /v1/datasets/{dataset}/reservations, get /v1/reservations/{reservation}"
    ),
    "spend": (
        "post /v1/authorizations, post /v1/datasets/{dataset}/allocations,"
        " post /v1/datasets/{dataset}/allocations/{allocation}/return,"
        " post /v1/datasets/{dataset}/budget-requests, post /v1/datasets/{dataset}/epochs,"
        " post /v1/datasets/{dataset}/budget-requests/{request}/withdrawal,"
        " post /v1/datasets/{dataset}/authorizations, post /v1/datasets/{dataset}/reservations,"
        " post /v1/reservations/{reservation}/settlement"
    ),
    "admin": (
        "post /v1/datasets, post /v1/datasets/{dataset}/budget-changes, post /v1/datasets/{dataset}/quotas,"
        " post /v1/datasets/{dataset}/budget-requests/{request}/decision,"
        " post /v1/datasets/{dataset}/renewal,"
        " post /v1/datasets/{dataset}/partitions, post /v1/datasets/{dataset}/rollback-acceptances,"
        " post /v1/tokens, get /v1/tokens, delete /v1/tokens/{token}"
    ),
}
"""By scope, the routes that need it; each scope includes the ones before it."""
SCOPE_OF = {route: scope for scope, routes in NEEDED.items() for route in routes.split(", ")}
RANKS = list(NEEDED)
PLACES = {
    "dataset": "adult",
    "allocation": "a",
    "partition": "a",
    "sequence": "1",
    "request": "adult~1",
    "reservation": "adult~1",
    "token": "a",
}


@pytest.fixture(scope="module")
def bearers(still: Service) -> dict[str, Service]:
    scopes = {scope: still.make_token(scope) for scope in ("read", "spend", "admin")}
    return {**scopes, "other": still.make_token("admin", datasets=["elsewhere"])}


def _ask(bearer: Service, route: str, **headers: str) -> httpx2.Response:
    """A request that records nothing: its body is empty, or settles what is no reservation."""
    method, path = route.split(" ")
    sent = {**bearer.headers(), "Idempotency-Key": route, "Content-Type": "application/json", **headers}
    body = '{"used": 0}' if path.endswith("/settlement") else "{}"
    content = body if method == "post" else ""
    return bearer.client.request(method, path.format(**PLACES), headers=sent, content=content)


def _routes(service: Service) -> Iterator[str]:
    for path, operations in service.app.openapi()["paths"].items():
        yield from (f"{method} {path}" for method in operations)


def test_the_table_has_every_route_and_no_other(still: Service) -> None:
    assert sorted(SCOPE_OF) == sorted(_routes(still))


@pytest.mark.parametrize("route", SCOPE_OF)
@pytest.mark.parametrize("shown", ["", "Bearer dpl_a_" + "a" * 52, "Basic dXNlcg=="])
def test_without_a_token_only_what_is_public_is_open(still: Service, route: str, shown: str) -> None:
    answer = _ask(still, route, Authorization=shown)
    assert (answer.status_code == 401) is (SCOPE_OF[route] != "public")


@pytest.mark.parametrize("route", SCOPE_OF)
@pytest.mark.parametrize("scope", ["read", "spend", "admin"])
def test_a_token_opens_what_its_scope_includes(bearers: dict[str, Service], route: str, scope: str) -> None:
    answer = _ask(bearers[scope], route)
    assert (answer.status_code == 403) is (RANKS.index(scope) < RANKS.index(SCOPE_OF[route]))
    assert answer.status_code not in (401, 500)


@pytest.mark.parametrize("route", [route for route in SCOPE_OF if "{dataset}" in route or "{reser" in route])
def test_an_admin_of_another_dataset_reaches_nothing_of_this_one(
    bearers: dict[str, Service], route: str
) -> None:
    assert _ask(bearers["other"], route).status_code == 403
