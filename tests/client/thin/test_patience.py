"""A service that restarts is waited for, under one key, and the wait is logged."""

import asyncio
import logging
import subprocess
import sys
import time

import httpx2
import pytest

from dpledger_client import AsyncLedger, Gaussian, Ledger, NoAnswer, Retries
from dpledger_client._patience import Waiting
from tests.client.thin.fake import FakeService, dropped

STEP = Gaussian(1.0, 10.0)


def test_a_restart_of_a_minute_is_waited_for_by_default() -> None:
    pauses = list(Retries().pauses())

    assert 290.0 <= sum(pauses) <= 300.0 + 1e-9
    assert max(pauses) <= 5.0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_service_that_comes_back_is_asked_under_the_key_of_the_first_attempt(asynchronous: bool) -> None:
    service = FakeService(*[dropped] * 30)
    retries = Retries(first_pause_seconds=0.0, longest_pause_seconds=0.0)
    if asynchronous:
        ledger = AsyncLedger("http://ledger", transport=service.transport, retries=retries)
        granted = asyncio.run(ledger.dataset("d").run("job").authorize(STEP)).granted
    else:
        waiting = Ledger("http://ledger", transport=service.transport, retries=retries)
        granted = waiting.dataset("d").run("job").authorize(STEP).granted

    assert len(service.requests) == 31
    assert set(service.keys) == {granted.key}


def test_patience_ends() -> None:
    service = FakeService(*[dropped] * 10**6)
    ledger = Ledger("http://ledger", transport=service.transport, retries=Retries(patience_seconds=0.2))
    began = time.monotonic()

    with pytest.raises(NoAnswer, match="no route") as raised:
        ledger.dataset("d").run("job").authorize(STEP)

    assert time.monotonic() - began < 10.0
    assert "times within" in raised.value.__notes__[0]


def test_what_cannot_be_sent_is_not_sent_again() -> None:
    def broken(_request: httpx2.Request) -> httpx2.Response:
        raise httpx2.LocalProtocolError("illegal header value")

    service = FakeService(broken)
    with pytest.raises(NoAnswer, match="illegal header"):
        Ledger("http://ledger", transport=service.transport).dataset("d").run("job").authorize(STEP)

    assert len(service.requests) == 1


def _waited(log: pytest.LogCaptureFixture, *pauses: float) -> list[str]:
    """What is said while a request is answered after these pauses."""
    with log.at_level(logging.WARNING, logger="dpledger_client"):
        waiting = Waiting(Retries(first_pause_seconds=0.0), "http://ledger", "POST /v1/authorizations")
        for pause in pauses:
            waiting.pause(NoAnswer("ConnectError: refused"), pause)
        waiting.end()
    return [record.getMessage() for record in log.records]


def test_a_hiccup_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    assert _waited(caplog, 0.1, 0.2, 0.3) == []


def test_a_wait_is_logged_at_its_start_then_sparsely_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    said = _waited(caplog, *[5.0] * 14)

    assert len(said) == 4
    assert all("http://ledger" in each and "POST /v1/authorizations" in each for each in said)
    assert "ConnectError: refused" in said[0]
    assert "up to 300 s" in said[0]
    assert "answered" in said[-1]


def test_a_wait_is_reported_on_stderr_where_nobody_configured_logging() -> None:
    script = (
        "import dpledger_client as d\n"
        "try: d.Ledger('http://127.0.0.1:9', retries=d.Retries(patience_seconds=2.5)).key_set()\n"
        "except d.NoAnswer: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "waiting for http://127.0.0.1:9" in done.stderr
