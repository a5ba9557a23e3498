"""Walks over the API by its own description: schemathesis draws requests, links lead from one to the next.

Schemathesis finds links where names and schemas give them away. The others are added here: what a dataset, a
reservation, an allocation and a token lead to. Numbers that are drawn from a schema alone are seldom a budget
that can be opened, so every other body gets a budget or releases that can.
"""

import contextlib
import copy
from random import Random
from typing import Any

import hypothesis
import hypothesis.errors
import requests
import schemathesis
from schemathesis import Case, Response
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.stateful.state_machine import APIStateMachine

from tests.fuzz.judge import Answer
from tests.fuzz.run import Sender
from tests.fuzz.world import Ask
from tests.wire.requests import BUDGETS, GAUSSIAN, MECHANISMS, SHARED

__all__ = ["linked", "machine_over", "walk"]

_DATASET = "/v1/datasets/{dataset}"
_OWN = {"dataset": "$request.path.dataset"}
_LINKS: tuple[tuple[str, str, dict[str, str], tuple[str, ...]], ...] = (
    (
        "post /v1/datasets",
        "201",
        {"dataset": "$response.body#/name"},
        (
            *(
                f"post {_DATASET}/{what}"
                for what in ("authorizations", "reservations", "allocations", "partitions")
            ),
            *(
                f"get {_DATASET}{what}"
                for what in ("", "/budget", "/entries", "/runs", "/verification", "/export")
            ),
            f"post {_DATASET}/budget-changes",
            f"post {_DATASET}/forecast",
        ),
    ),
    (
        f"post {_DATASET}/authorizations",
        "201",
        {**_OWN, "sequence": "$response.body#/sequence"},
        (f"get {_DATASET}/entries/{{sequence}}",),
    ),
    (
        f"post {_DATASET}/reservations",
        "201",
        {"reservation": "$response.body#/id"},
        ("post /v1/reservations/{reservation}/settlement", "get /v1/reservations/{reservation}"),
    ),
    (
        f"post {_DATASET}/allocations",
        "201",
        {**_OWN, "allocation": "$response.body#/name"},
        (f"get {_DATASET}/allocations/{{allocation}}", f"post {_DATASET}/allocations/{{allocation}}/return"),
    ),
    ("post /v1/tokens", "201", {"token": "$response.body#/id"}, ("delete /v1/tokens/{token}",)),
)
"""From an operation's answer: the parameters that it gives, and the operations that take them."""


def linked(description: dict[str, Any]) -> dict[str, Any]:
    """The API's description with the links."""
    found = copy.deepcopy(description)
    for source, status, parameters, targets in _LINKS:
        method, path = source.split(" ")
        links = found["paths"][path][method]["responses"][status].setdefault("links", {})
        for target in targets:
            to_method, to_path = target.split(" ")
            operation = found["paths"][to_path][to_method]
            taken = {name: value for name, value in parameters.items() if f"{{{name}}}" in to_path}
            links[target] = {"operationId": operation["operationId"], "parameters": taken}
    return found


def machine_over(
    sender: Sender, description: dict[str, Any], token: str, random: Random
) -> type[APIStateMachine]:
    """A machine whose requests ``sender`` sends and judges."""
    config = SchemathesisConfig()
    schema = schemathesis.openapi.from_dict(linked(description), config=config)
    numbers = iter(range(10**9))

    class Walk(schema.as_state_machine()):  # type: ignore[misc]
        def before_call(self, case: "Case[Any]") -> None:
            headers = case.headers
            headers["Authorization"] = f"Bearer {token}"
            if case.method == "POST" and random.random() < 0.9:
                headers["Idempotency-Key"] = f"walk-{next(numbers)}"
            if isinstance(case.body, dict) and random.random() < 0.6:
                _mend(case.operation.path, case.body, random, next(numbers))

        def call(self, case: "Case[Any]", **_: Any) -> Response:
            ask = _ask(case)
            return _response(ask, sender.send(ask))

        def validate_response(self, *_: Any, **__: Any) -> None:
            """The sender has judged the answer already, by the same description."""

    return Walk


def _mend(path: str, body: dict[str, Any], random: Random, number: int) -> None:
    """Give a body that was drawn what it needs to be granted."""
    if path == "/v1/datasets":
        body["name"] = f"walk-{number}"
        body["budget"] = random.choice([*BUDGETS.values(), SHARED, SHARED])
        body.pop("partition_key", None)
    elif path.endswith("/allocations"):
        body |= {"epsilon": 0.01, "delta": 1e-8, "budget": {"accounting": "zcdp"}}
    elif "releases" in body:
        body["releases"] = [random.choice([GAUSSIAN, *MECHANISMS])]
        for name in ("sample", "item", "partition", "allocation"):
            body.pop(name, None)
        if "times" in body:
            body |= {"times": random.randint(1, 5), "expires_in_seconds": 3600.0}
    elif path.endswith("/settlement"):
        body["used"] = random.randint(0, 5)


def _ask(case: "Case[Any]") -> Ask:
    """The request as it would go over the wire."""
    made = requests.Request(**case.as_transport_kwargs(base_url="http://service")).prepare()
    body: Any = made.body
    content: bytes | None = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    headers = {
        name: value if isinstance(value, str) else value.decode("latin-1")
        for name, value in made.headers.items()
    }
    headers.pop("Content-Length", None)
    return Ask(made.method or "", made.path_url, headers, content)


def _response(ask: Ask, answer: Answer) -> Response:
    sent = requests.Request(ask.method, f"http://service{ask.path}").prepare()
    return Response(answer.status, {"content-type": [answer.media_type]}, answer.content, sent, 0.0, False)


def walk(machine: type[APIStateMachine], seed: int, walks: int, steps: int) -> None:
    """At most so many walks of so many steps; the same seed gives the same walks while answers are the same.

    The ledgers outlive a walk, so a walk may meet what an earlier one left. Hypothesis ends a run where
    that changes what it can draw; what an answer is found guilty of stays among the findings all the same.
    """
    settings = hypothesis.settings(
        max_examples=walks,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.seed(seed)(machine)
    with contextlib.suppress(hypothesis.errors.Flaky):
        machine.run(settings=settings)
