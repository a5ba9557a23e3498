"""The recorded session: several hundred requests over every route, the same each time.

Nothing in it depends on chance: keys, tokens, request ids and the clock are all given.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

GAUSSIAN: dict[str, Any] = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 20.0}
COSTLY: dict[str, Any] = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 0.3}
SUBSAMPLED: dict[str, Any] = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 2.0}
POISSON: dict[str, Any] = {"scheme": "poisson", "rate": 0.01}
WITHOUT_REPLACEMENT: dict[str, Any] = {"scheme": "without-replacement", "rate": 0.01}
MECHANISMS: tuple[dict[str, Any], ...] = (
    {"mechanism": "gaussian", "sensitivity": 3.0, "noise_std": 300.0, "purpose": "gradient"},
    {"mechanism": "discrete-gaussian", "sensitivity": 1.0, "noise_std": 40.0},
    {"mechanism": "laplace", "sensitivity": 1.0, "scale": 50.0},
    {"mechanism": "noisy-max", "noise": "gumbel", "sensitivity": 1.0, "scale": 50.0, "monotonic": True},
    {"mechanism": "noisy-max", "noise": "laplace", "sensitivity": 1.0, "scale": 50.0, "monotonic": False},
    {"mechanism": "exponential", "epsilon": 0.01, "monotonic": False},
    {
        "mechanism": "above-threshold",
        "noise": "laplace",
        "sensitivity": 1.0,
        "epsilon": 0.02,
        "max_queries": 20,
        "purpose": "line-search",
    },
    {"mechanism": "noisy-votes", "noise": "gaussian", "noise_std": 60.0},
    {"mechanism": "noisy-votes", "noise": "laplace", "scale": 60.0},
    {"mechanism": "randomized-response", "epsilon": 0.01},
    {"mechanism": "pure", "epsilon": 0.01},
    {"mechanism": "zcdp", "rho": 0.0001},
    {"mechanism": "gdp", "mu": 0.01},
    {
        "mechanism": "rdp",
        "orders": [2.0, 4.0, 8.0, 64.0, 1024.0],
        "epsilons": [0.001, 0.002, 0.004, 0.03, 0.5],
    },
)
BUDGETS: dict[str, dict[str, Any]] = {
    "zcdp-rho": {"accounting": "zcdp", "rho": 0.5},
    "zcdp-approx": {"accounting": "zcdp", "epsilon": 1.0, "delta": 1e-6},
    "gdp-mu": {"accounting": "gdp", "mu": 0.7},
    "gdp-approx": {"accounting": "gdp", "epsilon": 1.0, "delta": 1e-6},
    "rdp": {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5, "additive_delta": 1e-6},
    "rdp-order": {"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-6, "order": 16.0},
    "rdp-curve": {"accounting": "rdp-curve", "orders": [2.0, 16.0], "epsilons": [0.5, 2.0]},
}
SHARED: dict[str, Any] = {"accounting": "shared", "epsilon": 3.0, "delta": 1e-5}
PLANNED: dict[str, Any] = {
    "accounting": "rdp",
    "epsilon": 3.0,
    "delta": 1e-5,
    "plan": {"sample": POISSON, "releases": [SUBSAMPLED], "steps": 1000},
}


@dataclass(frozen=True)
class Request:
    """One request; ``advance`` moves the clock before it, ``bearer`` names the token that it shows."""

    method: str
    path: str
    body: Any = None
    key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    bearer: str | None = "admin"
    advance: float = 0.0


def session() -> Iterator[Request]:
    """Every request of the recorded session, in order."""
    keys = (f"key-{number:03}" for number in itertools.count(1))

    def post(path: str, body: Any, **more: Any) -> Request:
        return Request("POST", path, body, **{"key": next(keys), **more})

    yield from _open(post)
    yield from _authorize(post)
    yield from _repeat(post)
    yield from _reserve(post)
    yield from _partition(post)
    yield from _bulk(post)
    yield from _change(post)
    yield from _tokens(post)
    yield from _query()
    yield from _refuse(post)
    yield from _read()
    yield from _plan(post)
    yield from _share(post)
    yield from _draft()
    yield from _tune(post)
    yield from _report()
    yield from _limit(post)
    yield from _ask(post)
    yield from _renew(post)


def _open(post: Any) -> Iterator[Request]:
    for name, budget in {**BUDGETS, "planned": PLANNED}.items():
        body = {"name": name, "description": f"Data of {name}", "records": 10_000, "budget": budget}
        yield post("/v1/datasets", body)
    yield post("/v1/datasets", {"name": "parts", "budget": BUDGETS["rdp"], "unit": "user"})
    yield post("/v1/datasets", {"name": "fixed", "budget": {"accounting": "zcdp", "rho": 0.2}})
    replaced = {"adjacency": "replace-one", "budget": BUDGETS["rdp"], "records": 100}
    yield post("/v1/datasets", {"name": "replaced", "partition_key": "private", **replaced})
    yield post("/v1/datasets", {"name": "zcdp-rho", "budget": BUDGETS["zcdp-rho"]})


def _spend(*releases: dict[str, Any], run: str = "run-1", **more: Any) -> dict[str, Any]:
    return {"run": run, "releases": list(releases), **more}


def _authorize(post: Any) -> Iterator[Request]:
    for dataset in BUDGETS:
        for number in range(3):
            yield post(
                f"/v1/datasets/{dataset}/authorizations",
                _spend(GAUSSIAN, run=f"run-{number % 2}"),
                advance=1.0,
            )
        yield post(f"/v1/datasets/{dataset}/authorizations", _spend(COSTLY))
    for mechanism in MECHANISMS:
        yield post("/v1/datasets/rdp/authorizations", _spend(mechanism, run="all"), advance=0.25)
    for mechanism in MECHANISMS[:3]:
        yield post("/v1/datasets/rdp/authorizations", _spend(mechanism, sample=POISSON, run="sampled"))
        body = _spend(mechanism, sample=WITHOUT_REPLACEMENT, run="sampled")
        yield post("/v1/datasets/replaced/authorizations", body)
    yield post("/v1/datasets/planned/authorizations", _spend(SUBSAMPLED, sample=POISSON))
    yield post("/v1/datasets/planned/authorizations", _spend(SUBSAMPLED, sample={"id": "planned~2"}))
    approximate = {"mechanism": "approximate", "epsilon": 0.01, "delta": 1e-7}
    yield post("/v1/datasets/rdp/authorizations", _spend(approximate))
    yield post(
        "/v1/datasets/rdp/authorizations", _spend({**GAUSSIAN, "count": 5}, MECHANISMS[2], sample=POISSON)
    )


def _repeat(post: Any) -> Iterator[Request]:
    yield post("/v1/datasets/zcdp-rho/authorizations", _spend(GAUSSIAN), key="again")
    yield post("/v1/datasets/zcdp-rho/authorizations", _spend(GAUSSIAN), key="again")
    yield post("/v1/datasets/zcdp-rho/authorizations", _spend(SUBSAMPLED), key="again")
    yield post("/v1/datasets/zcdp-rho/authorizations", _spend(COSTLY), key="refused-again")
    yield post("/v1/datasets/zcdp-rho/authorizations", _spend(COSTLY), key="refused-again")
    yield post("/v1/datasets", {"name": "once", "budget": BUDGETS["gdp-mu"]}, key="open-again")
    yield post("/v1/datasets", {"name": "once", "budget": BUDGETS["gdp-mu"]}, key="open-again")


def _reserve(post: Any) -> Iterator[Request]:
    for dataset in ("zcdp-rho", "gdp-mu", "rdp", "rdp-order", "rdp-curve"):
        body = {**_spend(GAUSSIAN, run="held"), "times": 10, "expires_in_seconds": 60.0}
        yield post(f"/v1/datasets/{dataset}/reservations", body)
        yield Request("GET", f"/v1/datasets/{dataset}/reservations")
        yield Request("GET", f"/v1/datasets/{dataset}/budget?delta=1e-6")
    yield post(
        "/v1/datasets/gdp-mu/reservations", {**_spend(COSTLY), "times": 10, "expires_in_seconds": 60.0}
    )
    yield post("/v1/reservations/zcdp-rho~6/settlement", {"used": 4})
    yield post("/v1/reservations/zcdp-rho~6/settlement", {"used": 4})
    for name in ("zcdp-rho~6", "rdp~25", "none~5"):
        yield Request("GET", f"/v1/reservations/{name}")
    yield post("/v1/reservations/gdp-mu~5/settlement", {"used": 11})
    yield post("/v1/reservations/gdp-mu~5/settlement", {"used": 0})
    yield post("/v1/reservations/none~5/settlement", {"used": 0})
    # The others run out of time, and the next request to each dataset charges them.
    yield Request("GET", "/v1/datasets/rdp/budget", advance=120.0)
    yield post("/v1/datasets/rdp/authorizations", _spend(GAUSSIAN))
    yield post("/v1/datasets/rdp-order/authorizations", _spend(GAUSSIAN))


def _partition(post: Any) -> Iterator[Request]:
    yield post("/v1/datasets/parts/partitions", {"names": ["a", "b", "c"]})
    yield post("/v1/datasets/parts/partitions", {"count": 3})
    yield post(
        "/v1/datasets/parts/partitions",
        {"names": ["own"], "budget": {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-5}},
    )
    yield post("/v1/datasets/parts/partitions", {"names": ["a"]})
    yield post("/v1/datasets/replaced/partitions", {"count": 2})
    for name in ("a", "b", "own", "3"):
        yield post("/v1/datasets/parts/authorizations", _spend(GAUSSIAN, partition=name))
        yield post("/v1/datasets/parts/authorizations", _spend(COSTLY, partition=name))
    yield post("/v1/datasets/replaced/authorizations", _spend(GAUSSIAN, partition="0"))
    yield post("/v1/datasets/parts/authorizations", _spend(GAUSSIAN, partition="nowhere"))
    yield post("/v1/datasets/parts/authorizations", _spend(GAUSSIAN))
    for limit in (2, 100):
        yield Request("GET", f"/v1/datasets/parts/partitions?limit={limit}")


def _bulk(post: Any) -> Iterator[Request]:
    items = [
        {"dataset": "rdp", **_spend(GAUSSIAN, run="bulk")},
        {"dataset": "gdp-mu", **_spend(GAUSSIAN, run="bulk")},
        {"dataset": "parts", **_spend(GAUSSIAN, run="bulk", partition="b")},
    ]
    costly = {"dataset": "zcdp-rho", **_spend(COSTLY, run="bulk")}
    for mode in ("each", "all-or-nothing"):
        yield post("/v1/authorizations", {"mode": mode, "items": items})
        yield post("/v1/authorizations", {"mode": mode, "items": [*items, costly]})
        yield post("/v1/authorizations", {"mode": mode, "items": [*items, {**costly, "dataset": "none"}]})
    yield post("/v1/authorizations", {"mode": "each", "items": items}, key="bulk-again")
    yield post("/v1/authorizations", {"mode": "each", "items": items}, key="bulk-again")


def _change(post: Any) -> Iterator[Request]:
    for rho, match in ((0.3, '"2"'), (0.3, '"1"'), (0.0001, '"2"'), (0.4, '"3"')):
        body = {"budget": {"accounting": "zcdp", "rho": rho}, "reason": "another wave"}
        yield post("/v1/datasets/fixed/budget-changes", body, headers={"If-Match": match})
        yield post("/v1/datasets/fixed/authorizations", _spend(GAUSSIAN))
        yield Request("GET", "/v1/datasets/fixed/budget")
    lost = {"sequence": 99, "entry": "00" * 32, "reason": "the copy of Monday was put back"}
    yield post("/v1/datasets/fixed/rollback-acceptances", lost)
    wrong = {"budget": {"accounting": "gdp", "mu": 1.0}, "reason": "another rule"}
    yield post("/v1/datasets/fixed/budget-changes", wrong, headers={"If-Match": '"5"'})
    yield post("/v1/datasets/fixed/budget-changes", wrong)


def _tokens(post: Any) -> Iterator[Request]:
    yield post("/v1/tokens", {"scopes": ["read"], "description": "to look"}, key="reader")
    yield post("/v1/tokens", {"scopes": ["spend"], "datasets": ["rdp"]}, key="spender")
    yield post("/v1/tokens", {"scopes": ["spend"], "datasets": ["rdp"]}, key="spender")
    yield post("/v1/tokens", {"scopes": ["read"], "expires_in_seconds": 10.0}, key="passing")
    yield Request("GET", "/v1/tokens")
    yield Request("GET", "/v1/datasets", bearer="reader")
    yield Request("GET", "/v1/datasets", bearer="spender")
    yield post("/v1/datasets/rdp/authorizations", _spend(GAUSSIAN), bearer="spender")
    yield post("/v1/datasets/gdp-mu/authorizations", _spend(GAUSSIAN), bearer="spender")
    yield post("/v1/datasets/rdp/authorizations", _spend(GAUSSIAN), bearer="reader")
    yield Request("GET", "/v1/datasets", bearer="passing", advance=60.0)
    yield Request("DELETE", "/v1/tokens/{reader}")
    yield Request("GET", "/v1/datasets", bearer="reader", advance=60.0)
    yield Request("DELETE", "/v1/tokens/nobody")
    yield Request("GET", "/v1/tokens", bearer="spender")


def _query() -> Iterator[Request]:
    for mechanism in MECHANISMS:
        body = {"releases": [mechanism], "adjacency": "add-remove", "orders": [2.0, 8.0, 32.0]}
        yield Request("POST", "/v1/costs", body)
    for goal, to in (("approximate", "zcdp"), ("approximate", "gdp"), ("zcdp", "approximate")):
        held: dict[str, Any] = {"approximate": {"epsilon": 1.0, "delta": 1e-6}, "zcdp": {"rho": 0.1}}[goal]
        wanted = {"notion": to, **({"delta": 1e-6} if to == "approximate" else {})}
        field_name = "goal" if goal == "approximate" else "from"
        yield Request("POST", "/v1/conversions", {field_name: {"notion": goal, **held}, "to": wanted})
    amplified = {"sample": POISSON, "adjacency": "add-remove"}
    yield Request("POST", "/v1/amplifications", {**amplified, "epsilon": 0.5, "delta": 1e-8})
    yield Request("POST", "/v1/amplifications", {**amplified, "releases": [SUBSAMPLED], "orders": [2.0, 8.0]})
    plan = [{"sample": POISSON, "times": 1000, "releases": [SUBSAMPLED]}]
    for method in ("rdp", "basic", "advanced", "zcdp", "nonsense"):
        query = {"plan": plan, "adjacency": "add-remove", "delta": 1e-5, "method": method}
        yield Request("POST", "/v1/compositions", query)
    solve: dict[str, Any] = {
        "target": {"epsilon": 1.0, "delta": 1e-5},
        "adjacency": "add-remove",
        "method": "rdp",
    }
    open_noise = {"mechanism": "gaussian", "sensitivity": 1.0}
    yield Request(
        "POST",
        "/v1/calibrations",
        {**solve, "solve_for": "noise_std", "steps": 100, "sample": POISSON, "releases": [open_noise]},
    )
    yield Request(
        "POST",
        "/v1/calibrations",
        {**solve, "solve_for": "steps", "sample": POISSON, "releases": [SUBSAMPLED]},
    )
    for dataset in BUDGETS:
        yield Request("POST", f"/v1/datasets/{dataset}/forecast", {"releases": [GAUSSIAN]})


def _refuse(post: Any) -> Iterator[Request]:
    """What is turned away."""
    here = "/v1/datasets/rdp/authorizations"
    yield Request("POST", here, _spend(GAUSSIAN))
    yield post(here, _spend(GAUSSIAN), bearer=None)
    yield post(here, _spend(GAUSSIAN), bearer="unknown")
    yield post(here, {"run": "r", "releases": []})
    yield post(here, {"run": "r", "releases": [{"mechanism": "gaussian", "sensitivity": 1.0}]})
    yield post(here, _spend({**GAUSSIAN, "noise_std": -1.0}))
    yield post(here, _spend({"mechanism": "nonsense"}))
    yield post(here, {**_spend(GAUSSIAN), "surprise": 1})
    yield post(here, _spend(GAUSSIAN, sample=WITHOUT_REPLACEMENT))
    yield post(here, _spend(GAUSSIAN, sample={"id": "rdp~1"}))
    yield post(here, _spend(GAUSSIAN), headers={"Content-Type": "text/plain"})
    yield post("/v1/datasets/none/authorizations", _spend(GAUSSIAN))
    yield post("/v1/datasets/UPPER/authorizations", _spend(GAUSSIAN))
    yield Request("GET", "/v1/datasets/none")
    yield Request("GET", "/v1/nothing")
    yield Request("PUT", "/v1/datasets")
    yield Request("GET", "/v1/datasets?limit=0")
    yield Request("GET", "/v1/datasets?next=!!!")
    for budget in (
        {"accounting": "zcdp"},
        {"accounting": "magic"},
        {"accounting": "rdp", "epsilon": 1e-9, "delta": 1e-9},
    ):
        yield post("/v1/datasets", {"name": "refused", "budget": budget})


def _plan(post: Any) -> Iterator[Request]:
    """Plan budgets: items by equality, by domination, by name, caps, refusals and a lowered count."""
    sgd = {"sample": POISSON, "releases": [{**GAUSSIAN, "noise_std": 1.1}]}
    items = [
        {"name": "sgd", **sgd, "times": 3},
        {"name": "gradients", "gdp": {"mu": 0.1}},
        {"name": "searches", "zcdp": {"rho": 0.001}},
    ]
    budget = {"accounting": "plan", "epsilon": 1.0, "delta": 1e-5, "items": items}
    yield post("/v1/datasets", {"name": "plan-items", "budget": budget})
    path = "/v1/datasets/plan-items/authorizations"
    gentle = {**sgd, "releases": [{**GAUSSIAN, "noise_std": 2.0}]}
    for step in (sgd, gentle, {**gentle, "item": "sgd"}, sgd, {**sgd, "item": "gradients"}):
        yield post(path, {"run": "run-1", **step})
    for noise in (20.0, 5.0):
        yield post(path, {"run": "run-2", "releases": [{**GAUSSIAN, "noise_std": noise}]})
    yield post(path, {"run": "run-2", "releases": [{"mechanism": "zcdp", "rho": 0.001}]})
    lower = {"accounting": "plan", "items": [{"name": "gradients", "gdp": {"mu": 0.06}}]}
    changed = {"budget": lower, "reason": "a smaller study"}
    yield post("/v1/datasets/plan-items/budget-changes", changed, headers={"If-Match": '"6"'})
    yield post("/v1/datasets/plan-items/budget-changes", changed, headers={"If-Match": '"1"'})
    for what in ("", "/budget", "/entries", "/runs", "/verification"):
        yield Request("GET", f"/v1/datasets/plan-items{what}")


def _read() -> Iterator[Request]:
    for dataset in [*BUDGETS, "planned", "parts", "fixed", "replaced"]:
        for what in ("", "/budget", "/entries?limit=5", "/runs", "/reservations", "/verification", "/export"):
            yield Request("GET", f"/v1/datasets/{dataset}{what}")
    for query in ("kind=authorized", "run=all", "newest_first=true", "limit=1"):
        yield Request("GET", f"/v1/datasets/rdp/entries?{query}")
    for sequence in (1, 2, 99999):
        yield Request("GET", f"/v1/datasets/rdp/entries/{sequence}")
    yield Request("GET", "/v1/datasets?limit=2")
    yield Request("GET", "/v1/datasets?search=zcdp")
    for path in ("/healthz", "/readyz", "/.well-known/dpledger-keys.json"):
        yield Request("GET", path, bearer=None)


def _share(post: Any) -> Iterator[Request]:
    """A shared budget, its allocations, and what is spent from them."""
    here = "/v1/datasets/shared"
    yield post("/v1/datasets", {"name": "shared", "budget": SHARED})
    parts = {
        "team-a": {"accounting": "zcdp"},
        "team-b": {"accounting": "gdp"},
        "team-c": {"accounting": "rdp-order", "order": 64.0},
    }
    for name, budget in parts.items():
        yield post(f"{here}/allocations", {"name": name, "epsilon": 0.9, "delta": 1e-6, "budget": budget})
    yield post(
        f"{here}/allocations", {"name": "team-d", "epsilon": 0.9, "delta": 1e-6, "budget": parts["team-a"]}
    )
    yield post(
        f"{here}/allocations", {"name": "team-a", "epsilon": 0.1, "delta": 1e-6, "budget": parts["team-a"]}
    )
    yield post(
        f"{here}/allocations", {"name": "rho", "epsilon": 0.1, "delta": 1e-6, "budget": BUDGETS["zcdp-rho"]}
    )
    yield post(
        "/v1/datasets/gdp-mu/allocations", {"name": "a", "epsilon": 0.1, "delta": 1e-6, "budget": SHARED}
    )
    for named in ({"allocation": "team-a"}, {"allocation": "team-b"}, {"allocation": "team-c"}, {}):
        yield post(f"{here}/authorizations", {**_spend(GAUSSIAN), **named})
    again = post(f"{here}/authorizations", {**_spend(GAUSSIAN), "allocation": "team-a"})
    yield from (again, again)
    yield post(f"{here}/authorizations", {**_spend(COSTLY), "allocation": "team-a"})
    held = {**_spend(GAUSSIAN), "allocation": "team-b", "times": 3, "expires_in_seconds": 60.0}
    reserve = post(f"{here}/reservations", held)
    yield reserve
    yield Request("GET", f"{here}/reservations")
    yield Request("POST", f"{here}/forecast", {"releases": [GAUSSIAN], "allocation": "team-c"})
    yield post(f"{here}/allocations/team-b/return", {"reason": "not needed"})
    yield post(
        f"{here}/allocations", {"name": "team-e", "epsilon": 0.3, "delta": 1e-6, "budget": parts["team-a"]}
    )
    yield post(f"{here}/allocations/team-e/return", {"reason": "not needed"})
    for what in (
        "",
        "/budget",
        "/allocations",
        "/allocations/team-a",
        "/allocations/team-e",
        "/allocations/none",
    ):
        yield Request("GET", here + what)
    for what in (
        "/entries?allocation=team-a",
        "/entries?kind=allocated",
        "/runs",
        "/verification",
        "/export",
    ):
        yield Request("GET", here + what)


def _draft() -> Iterator[Request]:
    person = (
        "data_curators=Office&intended_use=Teaching&data_product_type=Dataset&data_product_region=EU"
        "&publication_date=2026-11-18&tier=3&delta=1e-6"
    )
    for name in ("zcdp-rho", "gdp-approx", "rdp-curve", "shared"):
        yield Request("GET", f"/v1/datasets/{name}/deployment?{person}&description=Rows")
    yield Request("GET", f"/v1/datasets/gdp-mu/deployment?{person}&format=yaml")
    yield Request("GET", "/v1/datasets/gdp-mu/deployment?tier=4")


def _tune(post: Any) -> Iterator[Request]:
    yield post("/v1/datasets", {"name": "tuned", "budget": BUDGETS["rdp"]})
    law = {"law": "truncated-negative-binomial", "eta": 0.0, "gamma": 0.1}
    score = {"releases": [{**GAUSSIAN, "noise_std": 1000.0}]}
    trial = {"sample": POISSON, "releases": [{**GAUSSIAN, "noise_std": 500.0}], "times": 10}
    tuned = {"mechanism": "tuned", **law, "candidates": [[trial, score]]}
    yield post("/v1/datasets/tuned/authorizations", _spend(tuned))
    yield post("/v1/datasets/zcdp-rho/authorizations", _spend(tuned))
    poisson = {"mechanism": "tuned", "law": "poisson", "mean": 3.0, "candidates": [[score], [trial]]}
    yield Request("POST", "/v1/costs", {"releases": [poisson], "adjacency": "add-remove", "orders": [2.0]})


def _report() -> Iterator[Request]:
    for name in ("a", "own", "nobody"):
        yield Request("GET", f"/v1/datasets/parts/partitions/{name}")
    for name in ("zcdp-approx", "gdp-mu", "plan-items", "shared", "fixed", "nobody"):
        yield Request("GET", f"/v1/datasets/{name}/report")


def _limit(post: Any) -> Iterator[Request]:
    """A team and its quotas."""
    here = "/v1/datasets/limited"
    yield post("/v1/datasets", {"name": "limited", "budget": {"accounting": "zcdp", "rho": 0.5}})
    yield post("/v1/tokens", {"scopes": ["spend"], "team": "ranking"}, key="ranking")
    yield post(f"{here}/quotas", {"team": "ranking", "fraction": 0.02, "reason": "a trial"})
    weekly = {"team": "ranking", "window_seconds": 604800, "reason": "a trial"}
    yield post(f"{here}/quotas", {**weekly, "fraction": 0.01})
    step = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 10.0}
    yield post(f"{here}/authorizations", _spend(step), bearer="ranking")
    yield post(f"{here}/authorizations", _spend(step), bearer="ranking", advance=60.0)
    yield Request("GET", f"{here}/quotas")
    yield post(f"{here}/quotas", {**weekly, "fraction": None})
    yield post(f"{here}/quotas", {**weekly, "fraction": None})
    hold = {**_spend(step), "times": 2, "expires_in_seconds": 60.0}
    yield post(f"{here}/reservations", hold, bearer="ranking")
    yield post(f"{here}/partitions", {"names": ["north"]})
    item = {"dataset": "limited", **_spend(step)}
    for mode in ("each", "all-or-nothing"):
        yield post("/v1/authorizations", {"mode": mode, "items": [item, item]}, bearer="ranking")
    for what in ("/entries", "/runs", "/verification"):
        yield Request("GET", here + what)


def _ask(post: Any) -> Iterator[Request]:
    """Requests for budget, and what an admin decides of them."""
    here = "/v1/datasets/asked"
    yield post("/v1/datasets", {"name": "asked", "budget": SHARED})
    yield post("/v1/tokens", {"scopes": ["spend"], "team": "search"}, key="search")
    part = {"name": "study", "epsilon": 1.0, "delta": 1e-6, "budget": {"accounting": "zcdp"}}
    raised = {"budget": {**SHARED, "epsilon": 4.0}, "reason": "another year"}
    ask = post(f"{here}/budget-requests", {"allocation": part, "reason": "a study"}, bearer="search")
    yield from (ask, ask)
    for body in (raised, {"quota": {"fraction": 0.5}, "reason": "more"}, {"reason": "nothing"}):
        yield post(f"{here}/budget-requests", body, bearer="search")
    yield post(f"{here}/quotas", {"team": "search", "fraction": 0.1, "reason": "a trial"})
    yield post(f"{here}/budget-requests", {"quota": {"fraction": 0.5}, "reason": "more"}, bearer="search")
    for request, decision in (("asked~2", "approve"), ("asked~3", "approve"), ("asked~3", "reject")):
        body = {"decision": decision, "reason": "seen"}
        yield post(f"{here}/budget-requests/{request}/decision", body, advance=60.0)
    yield post(f"{here}/budget-requests/asked~5/decision", {"decision": "reject"})
    yield post(f"{here}/budget-requests/asked~5/decision", {"decision": "approve"}, bearer="search")
    yield post(f"{here}/budget-requests/asked~5/withdrawal", {})
    yield post(f"{here}/budget-requests/asked~5/withdrawal", {"reason": "not needed"}, bearer="search")
    large = {"allocation": {**part, "name": "large", "epsilon": 4.0}, "reason": "all of it"}
    yield post(f"{here}/budget-requests", large, bearer="search")
    for decision in ("approve", "reject"):
        yield post(f"{here}/budget-requests/asked~11/decision", {"decision": decision, "reason": "seen"})
    for what in ("budget-requests", "budget-requests?state=open", "budget-requests?limit=1"):
        yield Request("GET", f"{here}/{what}")
    for what in ("budget-requests/asked~2", "budget-requests/asked~1", "entries", "verification", "budget"):
        yield Request("GET", f"{here}/{what}")


def _renew(post: Any) -> Iterator[Request]:
    """A budget that is renewed for the new data of each month."""
    here = "/v1/datasets/renewed"
    policy = {"period": "month", "budget": {"accounting": "zcdp", "rho": 0.1}, "reason": "a year of data"}
    opened = {"name": "renewed", "budget": BUDGETS["zcdp-rho"], "unit": "session"}
    yield post("/v1/datasets", {**opened, "units_in_one_partition": True})
    yield post(f"{here}/renewal", policy)
    yield post(f"{here}/partitions", {"names": ["2023-10"]})
    yield Request("GET", f"{here}/renewal")
    yield post(f"{here}/renewal", policy)
    yield post(f"{here}/renewal", {**policy, "period": "week"})
    yield Request("GET", f"{here}/renewal")
    begin = {"records_are_new": True, "statement": "dated by their start"}
    for epoch in ("2023-10", "2023-11", "2023-11"):
        yield post(f"{here}/epochs", {"epoch": epoch, **begin}, bearer="search")
    yield post(f"{here}/epochs", {"epoch": "2023-12", **begin, "records_are_new": False}, bearer="search")
    yield post(f"{here}/authorizations", {**_spend(GAUSSIAN), "partition": "2023-11"}, bearer="search")
    yield post(f"{here}/renewal", {**policy, "budget": None})
    yield post(f"{here}/epochs", {"epoch": "2023-12", **begin}, bearer="search")
    for what in ("partitions", "entries", "verification"):
        yield Request("GET", f"{here}/{what}")
