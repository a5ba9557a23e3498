"""OpenTelemetry: every request is a span, authorizations included, and no secret is in any."""

import json
import logging
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from starlette.types import Scope

from dpledger.api.app import create_app
from dpledger.api.fast_path import dataset_in
from dpledger.logs import JsonFormatter
from dpledger.settings import InvalidSettings, Settings
from tests.api.service import Service, SetClock, made

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(tmp_path: Path, spans: InMemorySpanExporter) -> Iterator[Service]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    reported: list[str] = []
    settings = Settings(f"sqlite:///{tmp_path / 'ledger.db'}", otel=True)
    app = create_app(settings, announce=reported.append, tracer_provider=provider)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield Service(client, reported[0], SetClock())
    provider.shutdown()


def served(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.kind is SpanKind.SERVER]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_an_authorization_is_a_span_under_its_callers(traced: Service, spans: InMemorySpanExporter) -> None:
    traced.open("adult")
    spans.clear()

    body = {"run": "run-1", "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 2.0}]}
    answer = traced.post("/v1/datasets/adult/authorizations", body, headers={"traceparent": PARENT})

    assert answer.status_code == 201
    (span,) = served(spans)
    assert span.name == "POST /v1/datasets/{dataset}/authorizations"
    assert attributes(span)["http.response.status_code"] == 201
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == PARENT.split("-")[1]


def test_tracing_takes_the_same_way_as_without(
    traced: Service, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    served_fast: list[str] = []

    def counted(scope: Scope) -> str | None:
        dataset = dataset_in(scope)
        served_fast.extend([] if dataset is None else [dataset])
        return dataset

    monkeypatch.setattr("dpledger.api.fast_path.dataset_in", counted)
    traced.open("adult")
    spans.clear()

    made(traced.authorize())
    refused = traced.as_bearer("").authorize()

    assert served_fast == ["adult", "adult"]
    # The framework's own routes trace their endpoints too.
    assert spans.get_finished_spans() == tuple(served(spans))
    route = "/v1/datasets/{dataset}/authorizations"
    assert [attributes(span)["http.route"] for span in served(spans)] == [route] * 2
    codes = [attributes(span)["http.response.status_code"] for span in served(spans)]
    assert codes == [201, refused.status_code] == [201, 401]


def test_a_log_line_names_its_trace(traced: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.setFormatter(JsonFormatter())
    caplog.set_level(logging.INFO)
    made = traced.post("/v1/tokens", {"scopes": ["read"]}, headers={"traceparent": PARENT})

    assert made.status_code == 201
    (line,) = [json.loads(each) for each in caplog.text.splitlines() if '"token created"' in each]
    assert line["trace_id"] == PARENT.split("-")[1]
    assert line["request_id"] == made.headers["x-request-id"]


def test_a_refusal_and_a_replay_are_answered_as_without_tracing(traced: Service) -> None:
    traced.open("adult")

    first, again = (traced.authorize(key="one") for _ in range(2))
    for _ in range(3):
        traced.authorize()

    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert traced.authorize().status_code == 409


def test_no_span_holds_a_token(traced: Service, spans: InMemorySpanExporter) -> None:
    traced.open("adult")
    traced.authorize()
    traced.budget()

    assert len(served(spans)) == 3
    assert traced.token not in "".join(span.to_json() for span in spans.get_finished_spans())


def test_nothing_is_traced_unless_it_is_wanted(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    app = create_app(Settings(f"sqlite:///{tmp_path / 'ledger.db'}"), tracer_provider=provider)
    with TestClient(app) as client:
        assert client.get("/healthz").status_code == 200

    assert spans.get_finished_spans() == ()
    provider.shutdown()


def test_without_the_extra_the_service_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_it(name: str, *rest: Any) -> Any:
        return None if name == "opentelemetry.sdk" else util.find_spec(name, *rest)

    monkeypatch.setattr("dpledger.settings.find_spec", without_it)
    with pytest.raises(InvalidSettings, match="extra otel") as refused:
        Settings(otel=True)

    assert refused.value.option == "DPLEDGER_OTEL"
